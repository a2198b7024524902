"""The parts of a request while the request is read. If a part is stated twice with different values, the request is refused."""

from __future__ import annotations

from collections.abc import Callable

from envbuild.errors import UsageError
from envbuild.matrix.types import FrameworkTable


class FrameworkDraft:
    """The parts that the request states for one framework. ``name`` is the name that the request uses for the framework."""

    def __init__(self, framework: FrameworkTable, name: str) -> None:
        self.framework = framework
        self.name = name
        self.parts: dict[str, str] = {}


class Draft:
    """The parts of a request that were read so far: the parts of each framework, and the parts of the whole request.

    ``resolves`` says whether a corrected spelling of the request resolves to an environment.
    """

    def __init__(self, text: str, resolves: Callable[[str], bool] = lambda _text: True) -> None:
        self.text = text
        self.resolves = resolves
        self.pieces: list[FrameworkDraft] = []
        self.parts: dict[str, str] = {}
        self.clauses: dict[str, str] = {}

    def piece(self, framework: FrameworkTable, name: str = "") -> FrameworkDraft:
        """Return the draft of a framework; if there is none yet, make it with ``name``."""
        found = self.find(framework)
        if found is None:
            found = FrameworkDraft(framework=framework, name=name)
            self.pieces.append(found)
        return found

    def find(self, framework: FrameworkTable) -> FrameworkDraft | None:
        """The draft of a framework, or None if the request has not named the framework so far."""
        return next((piece for piece in self.pieces if piece.framework is framework), None)

    def put(self, part: str, value: str, piece: FrameworkDraft | None = None) -> None:
        """Store the value of a part. The part belongs to the framework of the draft ``piece``, or to the whole request if
        ``piece`` is None."""
        parts = self.parts if piece is None else piece.parts
        if parts.get(part, value) != value:
            raise UsageError(
                f"{self.text!r} sets {part} twice: {parts[part]} and {value}.",
                code="contradiction",
                hint="Set each part only once, in the name or with an option.",
            )
        parts[part] = value

    def narrow(self, part: str, clauses: str) -> None:
        """Add clauses (such as ``>=9``) for a part of the whole request. All clauses of a part must hold."""
        self.clauses[part] = ",".join(filter(None, (self.clauses.get(part, ""), clauses)))

    def get(self, part: str) -> str:
        """Return the value and the clauses of a part of the whole request, joined by commas."""
        return ",".join(filter(None, (self.parts.get(part, ""), self.clauses.get(part, ""))))

    def share_last(self) -> None:
        """Use the CUDA of the last framework for all frameworks without a CUDA of their own."""
        last = self.pieces[-1].parts.pop("cuda", "")
        if last:
            self.put("cuda", last)
