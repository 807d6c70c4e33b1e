"""``stsbench texts``: the sentences of tasks, for other toolkits to embed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from stsbench.cli import options as opt
from stsbench.cli.printing import print_text, print_unchanged
from stsbench.core.errors import OutputError, StsbenchError
from stsbench.core.files import write_atomically
from stsbench.core.wording import PAIR_MARK, describe_sentence

LIST_FORMATS = (".jsonl", ".txt")
"""The endings of files of sentences."""


def texts_command(
    *,
    tasks: opt.TaskArguments,
    protocol: opt.Protocols = None,
    split: opt.Split = None,
    pairs: opt.WritesPairs = False,
    out: opt.TextsFile = None,
    data: opt.Data = None,
    _config: opt.Config = None,
    cards: opt.Cards,
) -> None:
    """Write the sentences of tasks, for other toolkits to embed.

    Each distinct sentence that the scores need is written once, in the order of the tasks and their
    data. Embed them in this order, and score the file of embeddings with 'stsbench run
    file:EMBEDDINGS'. Without --out they are printed as JSON lines. With --pairs all pairs are
    written, with the keys sentence1 and sentence2, in the order of the data: score them, and score
    the file of scores with 'stsbench run --similarities FILE'.

    Example: stsbench texts stsb --out stsb.jsonl
    Example: stsbench texts stsb --pairs --out pairs.jsonl
    """
    from stsbench.bench.plan import RunPlan
    from stsbench.bench.progress import RunCallbacks
    from stsbench.bench.run import RunContext

    if not tasks:
        raise StsbenchError("texts needs a task or a suite, e.g. stsbench texts stsb")
    if out is not None and out.suffix not in LIST_FORMATS:
        raise StsbenchError(f"--out '{out}': give a file that ends in .jsonl or .txt")
    if pairs and out is not None and out.suffix != ".jsonl":
        raise StsbenchError(f"--out '{out}': pairs go to a file that ends in .jsonl")
    plan = RunPlan(
        tasks=tasks,
        protocol=protocol,
        split=split,
        data=data,
        catalogue=opt.read_cards(cards),
    )
    context = RunContext(plan, RunCallbacks().with_raised_failures())
    planned_tasks = [task.for_pair_scorer if pairs else task for task in context.tasks.values()]
    # Tasks that need embeddings have no pairs to score.
    texts = [text for task in filter(None, planned_tasks) for text in task.texts()]
    if not pairs:
        texts = list(dict.fromkeys(texts))
    content = _format_texts(texts, out)
    if out is None:
        # print_text would replace what looks like a secret, and the sentence would be another one.
        print_unchanged(content)
        return
    write_atomically(out, content.encode("utf-8", "surrogatepass"))
    print_text(f"wrote {len(texts):,} {'pairs' if pairs else 'sentences'} to {out}")


def _to_record(text: str) -> dict[str, str]:
    """Return the JSON object of a sentence, or of a joined pair."""
    from stsbench.data.readers.columns import PAIR_NAMES
    from stsbench.encoders.pairs import split_pair

    if not text.startswith(PAIR_MARK):
        return {"text": text}
    return dict(zip(PAIR_NAMES[0], split_pair(text), strict=True))


def _format_texts(sentences: Sequence[str], path: Path | None) -> str:
    """Return the content of a file of texts, in the format of its ending; None: JSON lines.

    Raises:
        OutputError: A sentence has a line break, which plain text cannot hold.
    """
    if path is None or path.suffix == ".jsonl":
        lines = [json.dumps(_to_record(sentence)) for sentence in sentences]
    else:
        lines = list(sentences)
        for row, sentence in enumerate(sentences):
            if "\n" in sentence or "\r" in sentence:
                raise OutputError(
                    f"--out '{path}': {describe_sentence(sentences, row)} has a line break, which "
                    "plain text cannot hold; give a file that ends in .jsonl"
                )
    return "".join(f"{line}\n" for line in lines)
