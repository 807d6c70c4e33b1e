"""``stsbench texts``: the sentences of tasks, for other toolkits to embed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from stsbench.cli import options as opt
from stsbench.cli.printing import print_text, print_unchanged
from stsbench.core.errors import OutputError, StsbenchError
from stsbench.core.files import write_atomically
from stsbench.core.wording import describe_sentence

LIST_FORMATS = (".jsonl", ".txt")
"""The endings of files of sentences."""


def texts_command(
    *,
    tasks: opt.TaskArguments,
    protocol: opt.Protocols = None,
    split: opt.Split = None,
    out: opt.TextsFile = None,
    data: opt.Data = None,
    _config: opt.Config = None,
    cards: opt.Cards,
) -> None:
    """Write the sentences of tasks, for other toolkits to embed.

    Each distinct sentence that the scores need is written once, in the order of the tasks and their
    data. Embed them in this order, and score the file of embeddings with 'stsbench run
    file:EMBEDDINGS'. Without --out they are printed as JSON lines.

    Example: stsbench texts stsb --out stsb.jsonl
    """
    from stsbench.bench.plan import RunPlan
    from stsbench.bench.progress import RunCallbacks
    from stsbench.bench.run import RunContext

    if not tasks:
        raise StsbenchError("texts needs a task or a suite, e.g. stsbench texts stsb")
    if out is not None and out.suffix not in LIST_FORMATS:
        raise StsbenchError(f"--out '{out}': give a file that ends in .jsonl or .txt")
    plan = RunPlan(
        tasks=tasks,
        protocol=protocol,
        split=split,
        data=data,
        catalogue=opt.read_cards(cards),
    )
    context = RunContext(plan, RunCallbacks().with_raised_failures())
    sentences = list(
        dict.fromkeys(text for task in context.tasks.values() for text in task.texts())
    )
    content = _format_sentences(sentences, out)
    if out is None:
        # print_text would replace what looks like a secret, and the sentence would be another one.
        print_unchanged(content)
        return
    write_atomically(out, content.encode("utf-8", "surrogatepass"))
    print_text(f"wrote {len(sentences):,} sentences to {out}")


def _format_sentences(sentences: Sequence[str], path: Path | None) -> str:
    """Return the content of a file of sentences, in the format of its ending; None: JSON lines.

    Raises:
        OutputError: A sentence has a line break, which plain text cannot hold.
    """
    if path is None or path.suffix == ".jsonl":
        lines = [json.dumps({"text": sentence}) for sentence in sentences]
    else:
        lines = list(sentences)
        for row, sentence in enumerate(sentences):
            if "\n" in sentence or "\r" in sentence:
                raise OutputError(
                    f"--out '{path}': {describe_sentence(sentences, row)} has a line break, which "
                    "plain text cannot hold; give a file that ends in .jsonl"
                )
    return "".join(f"{line}\n" for line in lines)
