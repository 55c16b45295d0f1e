"""From a path on the command line to the functions of a job file."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from tulip_actors.cli.job import Job
from tulip_actors.core.ports import ChatModel
from tulip_actors.errors import ConfigError, TulipError


@dataclass(frozen=True, slots=True)
class JobFile:
    """A loaded file. `modules`: it, and what it imported from the folder it lies in."""

    path: Path
    module: ModuleType
    modules: tuple[ModuleType, ...]

    def target(self, given: Path | None) -> Path:
        """The PATH of the command line, the file's own default, or the current folder."""
        if given is not None:
            return given
        return Path(getattr(self.module, "DEFAULT_TARGET", "."))

    def check(self, target: Path) -> None:
        """Let the file look at its target before anything is started. Raises `ConfigError`."""
        check = getattr(self.module, "check", None)
        if check is not None:
            self._call(check, target)

    def job(self, target: Path, model: ChatModel) -> Job:
        """What the file wants done. Raises `ConfigError`."""
        made = self._call(self.module.job, target, model)
        if not isinstance(made, Job):
            raise ConfigError(
                f"{self.path}: job(target, model) returned {type(made).__name__}; return a Job "
                "(from tulip_actors.cli.job import Job)"
            )
        return made

    def _call(self, function: Callable[..., object], *arguments: object) -> object:
        try:
            return function(*arguments)
        except TulipError:
            raise
        except Exception as error:  # the user's own code: said in a line that leads to it
            raise ConfigError(_where(self.path, error)) from error


def load(path: Path) -> JobFile:
    """Run the file as a module. Raises `ConfigError`, which says what is wrong and where."""
    if not path.is_file():
        raise ConfigError(f"there is no file {path}: give a Python file that defines job()")
    path = path.resolve()
    name = path.stem if path.stem not in sys.modules else f"job_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is not a Python file: its name has to end with .py")
    module = importlib.util.module_from_spec(spec)
    before = set(sys.modules)
    sys.path.insert(0, str(path.parent))  # as `python FILE` has it
    sys.modules[name] = module  # dataclasses look their module up by name
    try:
        spec.loader.exec_module(module)
    except TulipError:
        raise
    except Exception as error:  # the user's own code: said in a line that leads to it
        raise ConfigError(_where(path, error)) from error
    if not callable(getattr(module, "job", None)):
        raise ConfigError(f"{path} does not define job(target, model): see tulip_actors.cli.job")
    beside = [m for n, m in sys.modules.items() if n not in before and _lies_in(m, path.parent)]
    return JobFile(path, module, tuple(beside))


def _lies_in(module: ModuleType, folder: Path) -> bool:
    file = getattr(module, "__file__", None)
    if not file:
        return False
    found = Path(file).resolve()
    return found.is_relative_to(folder) and "site-packages" not in found.parts


def _where(path: Path, error: Exception) -> str:
    """The last line of the file that led to an exception, and the exception in a line."""
    line = error.lineno if isinstance(error, SyntaxError) else None
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == str(path):
            line = frame.lineno
    text = " ".join(str(error).split())
    return f"{path}, line {line or '?'}: {type(error).__name__}: {text}"
