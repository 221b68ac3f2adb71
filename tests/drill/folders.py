"""The disk is full, or a folder read-only, while an encoder or a state is saved: the old files stay."""
import errno
import os
import re
import shutil
from pathlib import Path
from unittest import mock

from .damage import small_pixels, train
from .kills import content_of

SHORT = 10


def attempt(rng, folder) -> None:
    encoder, target = small_pixels(), folder/"m"
    encoder.save_pretrained(target)
    train(folder/"run")
    before = content_of(folder)
    fault = rng.choice([errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO])
    function = rng.choice(["replace", "chmod"]) # the last steps of an atomic write
    backups = []
    calls = iter(range(rng.randint(0, 2)))
    real = getattr(os, function)

    def fail(*arguments, **options):
        if next(calls, None) is not None:
            return real(*arguments, **options)
        raise OSError(fault, os.strerror(fault), str(arguments[0]))
    with mock.patch(f"os.{function}", fail):
        for save in (lambda: small_pixels(1).save_pretrained(target), lambda: train(folder/"run2")):
            try:
                save()
            except OSError as error:
                assert error.errno == fault and error.filename
                backups += re.findall(r"previous files are in (.+), move them back", error.strerror)
    for backup in backups: # as the error says
        os.replace(backup, target)
        shutil.rmtree(Path(backup).parent)
    after = content_of(folder)
    kept = {name: after.get(name) for name in before}
    other = folder/"expected"
    small_pixels(1).save_pretrained(other)
    new = {f"m/{name}": content for name, content in content_of(other).items()}
    assert kept in (before, before | new)
    assert not list(folder.glob(".*")), "no temporary file remains"
