"""The one door to containers: choosing an engine, building, running, bases, and the private engine."""

from envbuild.engine.choice import connect, describe
from envbuild.engine.client import Engine
from envbuild.engine.model import BuiltImage, EngineInfo, ImageInfo, LayerFile, Mount, RunResult

__all__ = ["BuiltImage", "Engine", "EngineInfo", "ImageInfo", "LayerFile", "Mount", "RunResult", "connect", "describe"]
