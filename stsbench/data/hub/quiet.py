"""Keep the Hub's libraries off the terminal: what goes wrong is told by us, in one line."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from logging import CRITICAL, ERROR


@contextmanager
def quiet_hub(progress: bool = False) -> Iterator[None]:
    """Silence the Hub's library while files come; its bars may be let through."""
    from huggingface_hub import constants
    from huggingface_hub.utils import logging
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    level = logging.get_verbosity()
    # Where the environment decides on the bars, the library lets nobody else.
    hide = not progress and constants.HF_HUB_DISABLE_PROGRESS_BARS is None and not are_progress_bars_disabled()
    logging.set_verbosity(ERROR)
    if hide:
        disable_progress_bars()
    try:
        with warnings.catch_warnings():
            # Such as that the disk may be too small: whether it is, the error says.
            warnings.filterwarnings("ignore", module="huggingface_hub")
            yield
    finally:
        logging.set_verbosity(level)
        if hide:
            enable_progress_bars()


@contextmanager
def quiet_datasets() -> Iterator[None]:
    """Silence the datasets library, and the Hub's below it, while it reads files on this machine."""
    import datasets
    from datasets.utils import logging

    level = logging.get_verbosity()
    hide = datasets.config.HF_DATASETS_DISABLE_PROGRESS_BARS is None and not datasets.are_progress_bars_disabled()
    # It also logs the traceback of an error that it raises.
    logging.set_verbosity(CRITICAL)
    if hide:
        datasets.disable_progress_bars()
    try:
        with quiet_hub(), warnings.catch_warnings():
            # Some versions leave it to Python to close a file of CSV whose reading ends early.
            warnings.simplefilter("ignore", ResourceWarning)
            yield
    finally:
        logging.set_verbosity(level)
        if hide:
            datasets.enable_progress_bars()
