"""Coordination of specialist teams. Each pattern is a file on the public names of `tulip_actors`."""

from patterns.orchestrator import (
    Orchestrator,
    OrchestratorResult,
    Specialist,
    SpecialistResult,
)

__all__ = ["Orchestrator", "OrchestratorResult", "Specialist", "SpecialistResult"]
