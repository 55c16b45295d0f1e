"""Coordination of specialist teams: a file per pattern, on `tulip_actors`' public names alone."""

from patterns.orchestrator import (
    Orchestrator,
    OrchestratorResult,
    Specialist,
    SpecialistResult,
)

__all__ = ["Orchestrator", "OrchestratorResult", "Specialist", "SpecialistResult"]
