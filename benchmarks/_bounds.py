"""Figures with bounds: printed, and remembered when they miss."""

from __future__ import annotations

import sys


class Bounds:
    """Prints figures. Unless `held`, a missed bound is only shown."""

    def __init__(self, held: bool = True) -> None:
        self._held = held
        self._missed: list[str] = []

    def at_most(self, what: str, figure: float, bound: float) -> None:
        """A figure that may reach its bound."""
        self._tell(what, figure, f"at most {bound:,.4g}", met=figure <= bound)

    def below(self, what: str, figure: float, bound: float) -> None:
        """A figure that must stay below its bound."""
        self._tell(what, figure, f"below {bound:,.4g}", met=figure < bound)

    def at_least(self, what: str, figure: float, bound: float) -> None:
        """A figure that must reach its bound."""
        self._tell(what, figure, f"at least {bound:,.4g}", met=figure >= bound)

    def exit(self) -> None:
        """End the program with 1 if a bound was missed."""
        if self._missed and self._held:
            print(f"missed: {'; '.join(self._missed)}")
            sys.exit(1)

    def _tell(self, what: str, figure: float, bound: str, *, met: bool) -> None:
        if not met:
            self._missed.append(what.strip())
        print(f"{what:40}{figure:10,.2f}    ({bound}{'' if met else ': MISSED'})", flush=True)
