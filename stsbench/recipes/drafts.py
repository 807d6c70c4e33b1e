"""A training method of a user's own: a module that works, a recipe that trains it, and pairs to try it on."""

from __future__ import annotations

import keyword
from importlib.util import find_spec
from pathlib import Path
from string import Template

from stsbench.core.errors import StsbenchError
from stsbench.data.drafts import Draft, Home

MODULE = Template('''"""$name: a training method of your own. docs/extending.md says what may be changed."""

import torch

from stsbench.training.loop.gather import gather_pairs
from stsbench.training.objectives import info_nce
from stsbench.training.seams import Learner


class $class_name(Learner):
    """Each anchor finds its positive among all positives of the batch."""

    # The columns of the training text that this method reads; a batch has them one below the other, as "views".
    needs = ("anchor", "positive")
    # What stands in the recipe's [params].
    temperature: float = 0.05

    def forward(self, **batch) -> dict[str, torch.Tensor]:
        """Return the loss, a scalar tensor: change it to try an idea."""
        anchor, positive = gather_pairs(self.student.embed(batch["views"]), 2)
        return {"loss": info_nce(anchor, positive, temperature=self.temperature)}
''')
RECIPE = Template("""# A draft of 'stsbench new method'. Any value can be replaced for one run: --set learning_rate=1e-5.
name = "$class_name"
# the module $name.py is found in the folder where you call stsbench
method = "$name:$class_name"
paper = "none"
preset = "our own"
# what the text is: none (plain sentences), nli, sts, pairs or translation
supervision = "pairs"
backbone = "unknown"

[base]
# with model = "a folder or a Hub id" here, the option --base is not needed
note = "any encoder: --base NAME, a folder or a Hub id"

[data]
# your own file, or one of 'stsbench list corpora'
corpus = "$name.csv"

[params]
temperature = 0.05

[student]
pooling = "mean"

[training]
batch_size = 8
learning_rate = 3e-5
epochs = 2

[selection]
# quickstart-en is here so that this runs without data: choose on a development split, as stsb's validation
task = "quickstart-en"
split = "test"
every = 2
""")
PAIRS = """anchor,positive
The train was late this morning.,"This morning, the train did not come on time."
She planted roses behind the house.,There are roses that she planted in the back garden.
Our team won the last match.,The final game was won by our team.
He forgot his keys at the office.,His keys are still lying at the office.
The soup needs a little more salt.,There is not quite enough salt in the soup.
Two boys are flying a kite on the beach.,"On the beach, a kite is flown by two boys."
The shop closes at six on Fridays.,"On Fridays, the shop is open until six."
It has not rained for three weeks.,The last rain fell three weeks ago.
My sister teaches music at a school.,My sister is a music teacher.
The lights went out during the storm.,A storm left us without light.
Prices of bread went up again.,Bread has become more expensive once more.
Children under ten need no ticket for the castle.,"At the castle, nobody under ten pays."
A cat is asleep on the red sofa.,The red sofa has a sleeping cat on it.
They moved to a smaller flat last year.,"Last year, they went to live in a smaller flat."
The bridge will be closed until May.,Nobody can cross the bridge before May.
I have read this book twice.,This is a book that I read two times.
"""
"""Pairs for a first run, written for it."""


def draft_method(home: Home) -> Draft:
    """Draft a method's module and pairs, in the current folder, and its recipe.

    Raises StsbenchError: the name is no name of a module, or one that Python finds elsewhere.
    """
    name = home.name
    if not name.isidentifier() or keyword.iskeyword(name) or not name.isascii():
        near = "".join(sign if sign.isalnum() or sign == "_" else "_" for sign in name)
        fits = near.isidentifier() and not keyword.iskeyword(near)
        raise StsbenchError(f"'{name}' cannot be the name of a Python module{f'; give {near}' if fits else ''}")
    module = Path(f"{name}.py")
    found = find_spec(name)
    if found is not None and (found.origin is None or Path(found.origin).resolve() != module.resolve()):
        raise StsbenchError(f"Python has a module '{name}' already ({found.origin or 'a package'}); give another name")
    names = {"name": name, "class_name": "".join(part[:1].upper() + part[1:] for part in name.split("_")) or "Method"}
    return Draft(
        files={
            module: MODULE.substitute(names),
            Path(f"{name}.csv"): PAIRS,
            home.path: RECIPE.substitute(names),
        },
        found=[
            f"{module}: the method, a class to change",
            f"{name}.csv: sixteen pairs for a first run; replace them with your own text",
            f"{home.path}: the recipe",
        ],
        unsure=[],
        command=f"stsbench train {name} --base minilm {home.option()}",
    )
