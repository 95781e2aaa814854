"""Turn what a caller names into the subject of an erasure, and run it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from engrain.core.errors import InvalidInput
from engrain.core.model.erasure import Subject
from engrain.core.progress import Progress, stage_progress
from engrain.core.validation import checked_key
from engrain.privacy.requests import erase_subject, user_subject

if TYPE_CHECKING:
    from engrain.core.identity import Scope
    from engrain.ports import Services
    from engrain.privacy.erase import ErasureResult


def subject_of(scope: Scope, **parts: str | None) -> Subject:
    """A session, a source or an item of a scope; without any of them, the scope's user."""
    given = [(by, name) for by, name in parts.items() if name is not None]
    if len(given) > 1:
        raise InvalidInput("erase takes one of session=, source= and id=, or none of them.")
    if given:
        ((by, name),) = given
        return Subject(scope, by, checked_key(name, by))  # type: ignore[arg-type]
    if scope.user is None:
        raise InvalidInput("this memory has no user: erase takes session=, source= or id= here.")
    return user_subject(scope.tenant, scope.user)


def erase(
    services: Services,
    subject: Subject,
    folders: Sequence[str | os.PathLike[str]],
    dry_run: bool,
    progress: Progress | None,
) -> ErasureResult:
    """Erase a subject, and clean the folders of files that are named."""
    paths = [str(Path(one).expanduser().absolute()) for one in folders]
    if missing := [path for path in paths if not Path(path).is_dir()]:
        raise InvalidInput(f"there is no folder {missing[0]}. Nothing was erased.")
    return erase_subject(services, subject, paths, dry_run, stage_progress(progress))
