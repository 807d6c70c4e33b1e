"""Labels that a table can hold: long settings and long names become numbers, and the notes say what they stand for."""

from __future__ import annotations

import re
from dataclasses import replace

from stsbench.cards.names import LABEL, LONGEST, WITH_SETTINGS, cut_name, numbered
from stsbench.leaderboard.tables.layout import Layout, TableLine

NEXT_SETTING = re.compile(r"\+(?=[A-Za-z_][\w.]*=)")


def short_labels(layout: Layout, *, with_settings: int = WITH_SETTINGS) -> Layout:
    """The same layout with a number in the place of what makes a label too long, and a note for each number.

    ``minilm+pooling=cls_before_pooler+dtype=bfloat16`` is ``minilm+(1)``, and so are the same settings of others. Where a
    name itself is too long, its beginning stands before the number.

    Args:
        layout: what a renderer is about to write.
        with_settings: so many signs a label with settings may have.
    """
    notes: dict[str, str] = {}
    blocks = [
        replace(block, lines=[_short(line, notes, with_settings) for line in block.lines]) for block in layout.blocks
    ]
    told = [f"{number} {text}" for text, number in notes.items()]
    return replace(layout, blocks=blocks, legend=[*told, *layout.legend]) if told else layout


def _short(line: TableLine, notes: dict[str, str], with_settings: int) -> TableLine:
    found = LABEL.fullmatch(line.label)
    label = line.label
    if found and found["settings"] and len(label) > with_settings:
        settings = ", ".join(NEXT_SETTING.split(found["settings"])[1:])
        label = f"{found['stem']}+{numbered(settings, notes)}{found['state']}"
    return replace(line, label=cut_name(line.label, notes, LONGEST) if len(label) > LONGEST else label)
