"""The parts of a request while it is read. A part stated twice with different values is refused."""

from __future__ import annotations

from envbuild.errors import UsageError
from envbuild.matrix.types import FrameworkTable


class Piece:
    """What was said of one framework, in its own part of the request. ``name`` is the name that it was said by."""

    def __init__(self, framework: FrameworkTable, name: str) -> None:
        self.framework = framework
        self.name = name
        self.parts: dict[str, str] = {}


class Draft:
    """What was said so far: of each framework, and of all together."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.pieces: list[Piece] = []
        self.parts: dict[str, str] = {}
        self.clauses: dict[str, str] = {}

    def piece(self, framework: FrameworkTable, name: str = "") -> Piece:
        """The piece of a framework, begun with ``name`` where it was not named yet."""
        found = self.find(framework)
        if found is None:
            found = Piece(framework=framework, name=name)
            self.pieces.append(found)
        return found

    def find(self, framework: FrameworkTable) -> Piece | None:
        """The piece of a framework that was named already."""
        return next((piece for piece in self.pieces if piece.framework is framework), None)

    def put(self, part: str, value: str, piece: Piece | None = None) -> None:
        """Note what was said of a part, of one framework's if ``piece`` is given."""
        parts = self.parts if piece is None else piece.parts
        if parts.get(part, value) != value:
            raise UsageError(
                f"{self.text!r} says {part} twice: {parts[part]} and {value}.",
                code="contradiction",
                hint="Say each part once, in the name or as an option.",
            )
        parts[part] = value

    def narrow(self, part: str, clauses: str) -> None:
        """Several clauses about one part hold together."""
        self.clauses[part] = ",".join(filter(None, (self.clauses.get(part, ""), clauses)))

    def get(self, part: str) -> str:
        """All that was said of a part that is everybody's."""
        return ",".join(filter(None, (self.parts.get(part, ""), self.clauses.get(part, ""))))

    def share_last(self) -> None:
        """The CUDA of the last framework's part is that of all that say none."""
        last = self.pieces[-1].parts.pop("cuda", "")
        if last:
            self.put("cuda", last)
