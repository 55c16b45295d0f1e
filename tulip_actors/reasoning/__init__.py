"""How a run is judged: pure functions of its state."""

from tulip_actors.reasoning.reflexion import (
    AssessmentCategory,
    ReflectionResult,
    Reflector,
    evaluate_progress,
)

__all__ = ["AssessmentCategory", "ReflectionResult", "Reflector", "evaluate_progress"]
