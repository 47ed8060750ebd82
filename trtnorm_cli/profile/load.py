"""Read build profiles from YAML files, with the position of each value."""

from __future__ import annotations

import stat
from pathlib import Path

from pydantic import ValidationError

from trtnorm_cli.errors import ProfileError
from trtnorm_cli.profile.dims import described
from trtnorm_cli.profile.messages import problems_of
from trtnorm_cli.profile.model import BuildProfile
from trtnorm_cli.profile.plugins import library_problems
from trtnorm_cli.profile.positions import KeyPath
from trtnorm_cli.profile.problems import Problem, refusal
from trtnorm_cli.profile.yaml_tree import Tree, read_tree
from trtnorm_cli.suggest import did_you_mean

MAX_BYTES = 256 * 1024
_PROFILE_IS_YAML = "--profile names a YAML file that begins with 'optimization_profiles:'"


def load_profile(path: Path) -> BuildProfile:
    """Read a build profile and keep the line of every key, so that later errors can name it too.

    Raises one ProfileError with every problem of the file, a line each, the first in ``where``. A file that cannot be
    read, is no UTF-8 text, or is larger than 256 KiB is refused before it is parsed.
    """
    profile = parse_profile(_text(path), str(path))
    if problems := list(library_problems(profile, path.parent)):
        raise refusal(problems, profile.positions)
    return profile


def parse_profile(text: str, source: str | None = None) -> BuildProfile:
    """Read a build profile from YAML text. ``source`` is the file name for messages. Raises as ``load_profile``."""
    tree = read_tree(text, source)
    if () in tree.unread:
        raise refusal(tree.problems, tree.positions)
    if not isinstance(tree.value, dict):
        message = f"expected keys such as 'optimization_profiles', got {described(tree.value)}"
        raise refusal([Problem((), message, "the file should begin with 'optimization_profiles:'")], tree.positions)
    problems = list(tree.problems)
    try:
        profile = BuildProfile.model_validate(tree.value)
    except ValidationError as error:
        problems += [problem for problem in problems_of(error, tree.positions) if not _is_unread(problem.path, tree)]
    if problems:
        raise refusal(problems, tree.positions)
    return profile.located(tree.positions)


def _is_unread(path: KeyPath, tree: Tree) -> bool:
    held, _ = tree.positions.resolve(path)
    return any(held[:length] in tree.unread for length in range(len(held) + 1))


def _text(path: Path) -> str:
    content = _content(path)
    if len(content) > MAX_BYTES:
        raise ProfileError(f"the file is larger than {MAX_BYTES // 1024} KiB", str(path), _PROFILE_IS_YAML)
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ProfileError("the file is UTF-16, not UTF-8", str(path), "save it as UTF-8")
    if b"\0" in content:
        raise ProfileError("the file is binary, not YAML", str(path), _PROFILE_IS_YAML)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = f"{path}:{content.count(10, 0, error.start) + 1}"
        message = f"the file is not UTF-8: byte 0x{content[error.start]:02x}"
        raise ProfileError(message, where, "save it as UTF-8") from None


def _content(path: Path) -> bytes:
    try:
        # Opening a FIFO would wait for a writer that never comes.
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise ProfileError("the build profile is a folder", str(path), _PROFILE_IS_YAML)
        if not stat.S_ISREG(mode):
            raise ProfileError("the build profile is not a regular file", str(path), _PROFILE_IS_YAML)
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ProfileError(_missing_file(path), str(path)) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ProfileError(f"the build profile cannot be read: {reason}", str(path)) from None


def _missing_file(path: Path) -> str:
    try:
        names = [entry.name for entry in path.parent.iterdir() if entry.suffix in (".yaml", ".yml")]
    except OSError:
        return "the build profile does not exist"
    return "the build profile does not exist" + did_you_mean(path.name, names)
