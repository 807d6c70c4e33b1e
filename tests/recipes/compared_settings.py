"""The hyperparameters of the methods that the papers compare with, or that came after them, as their papers and code state them.

Each row names its source. ``None``: left to the checkpoint or the method.
"""

from __future__ import annotations

from typing import Any

Facts = dict[str, Any]

# Reimers and Gurevych 2019, section 3.1 (NLI) and 4.2 (STS-B); optimiser and selection of sentence-transformers 0.2.
SBERT = {
    "student.pooling": "mean",
    "student.max_length": 128 + 2,  # sentence-transformers 0.2 adds room for [CLS] and [SEP]
    "training.batch_size": 16,
    "training.learning_rate": 2e-5,
    "training.schedule": "linear",
    "training.warmup": 0.1,
    "training.optimiser": "adamw_uncorrected",
    "training.epsilon": 1e-6,
    "training.weight_decay": 0.01,
    "training.clip": 1.0,
    "selection.every": 1000,
    "selection.task": "stsb-raw",
    "selection.measure": "best_of_four",
}
OF_SBERT = {
    **SBERT,
    "data.corpus": "allnli",
    "training.epochs": 1,
    "params.features": "sbert",
    "params.bias": True,
}
REGRESSION = {
    **SBERT,
    "data.corpus": "stsb_train_pairs",
    "training.epochs": 4,
    "method.highest_score": 5.0,
}
REGRESSION |= {"seeds": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}  # table 2: ten random seeds
BIG = ("bert-base", "bert-large", "roberta-base", "roberta-large")
SBERT_ROWS = {f"sbert-{base}": (base, OF_SBERT) for base in BIG}
SBERT_ROWS |= {f"sbert-{base}-stsb-only": (base, REGRESSION) for base in BIG}
SBERT_ROWS |= {f"sbert-{base}-stsb": (f"sbert-{base}", REGRESSION) for base in BIG}
BY_CLS = {**OF_SBERT, "student.pooling": "cls_before_pooler"}
SBERT_ROWS |= {f"sbert-{base}-cls-token": (base, BY_CLS) for base in BIG[:2]}
TRIPLETS = {
    "data.corpus": "allnli_triplets",
    "training.batch_size": 128,
    "training.epochs": 1,
    "training.warmup": 0.1,
}
TRIPLETS |= {"student.max_length": 75, "method.scale": 20.0}
SBERT_ROWS["sbert-triplets-bert-base"] = ("bert-base", TRIPLETS)

# Contrastive-Tension@75293a8, the example of its README: 16 pairs a batch, one in eight of a sentence with itself.
CT = {
    "student.pooling": "mean",
    "student.max_length": 75,
    "training.batch_size": 16 // 8,
    "training.steps": 10 * 500,
    "training.optimiser": "rmsprop",
    "training.schedule": "piecewise",
    "training.rates": [1e-5, 8e-6, 6e-6, 4e-6, 2e-6],
    "selection.every": 500,
    "params.negatives": 7,
    "params.dropout_in_training": False,
}
CT_ROWS = {
    f"ct-{base}": (base, CT) for base in ("bert-base", "bert-large", "sbert-base", "sbert-large")
}

# IS-BERT@ea6622c, its training script.
IS_BERT = {
    "data.corpus": "allnli",
    "data.sentences": True,
    "student.pooling": "mean",
    "student.max_length": 128 + 3,  # its sentence-transformers adds room for special tokens
    "training.batch_size": 32,
    "training.epochs": 1,
    "training.learning_rate": 2e-6,
    "training.warmup": 0.1,
    "training.optimiser": "adamw_uncorrected",
    "training.epsilon": 1e-7,
    "training.weight_decay": 0.01,
    "selection.every": 1000,
    "selection.task": "stsb-raw",
    "selection.measure": "best_of_four",
    "params.widths": [1, 3, 5],
    "params.activation": "none",
    "params.mask_padding": False,
    "method.channels": None,  # a third of 768: 256
}

# facebookresearch/InferSent@c752882^, train_nli.py's defaults.
INFERSENT = {
    "training.batch_size": 64,
    "training.epochs": 20,
    "training.learning_rate": 0.1,
    "method.decay": 0.99,
    "method.shrink": 5.0,
    "method.min_rate": 1e-5,
    "method.clip": 5.0,
    "params.hidden": 2048,
    "params.head_size": 512,
    "seeds": [1234],
}

# What was made of SimCSE's code keeps its trainer's defaults.
AFTER_SIMCSE = {
    "data.corpus": "wiki1m",
    "student.pooling": "cls",
    "student.test_pooling": "cls_before_pooler",
    "student.max_length": 32,
    "student.dropout": None,
    "training.batch_size": 64,
    "training.epochs": 1,
    "training.schedule": "linear",
    "training.warmup": 0.0,
    "training.optimiser": "adamw",
    "training.epsilon": 1e-8,
    "training.weight_decay": 0.0,
    "training.clip": 1.0,
    "training.precision": "float16",
    "selection.every": 125,
    "selection.keep": "best",
    "selection.at_end": False,
    "method.temperature": 0.05,
    "seeds": [42],
}
# caskcsg/sentemb@5eeec55, ESimCSE/run.sh: learning rate, queue, repetition and dropout of each model.
ESIMCSE = {**AFTER_SIMCSE, "params.variant": "released", "params.momentum": 0.995}
AFTER_SIMCSE_ROWS: dict[str, tuple[str, Facts]] = {
    f"esimcse-{base}": (
        base,
        {
            **ESIMCSE,
            "training.learning_rate": rate,
            "params.queue_size": queue,
            "params.repetition_rate": repeated,
            "student.dropout": dropout,
        },
    )
    for base, rate, queue, repeated, dropout in (
        ("bert-base", 3e-5, 160, 0.32, None),
        ("bert-large", 1e-5, 160, 0.32, None),
        ("roberta-base", 1e-5, 160, 0.3, None),
        ("roberta-large", 1e-5, 128, 0.28, 0.15),
    )
}
# voidism/DiffCSE@f724b2c, run_diffcse.sh.
DIFFCSE = {
    **AFTER_SIMCSE,
    "training.learning_rate": 7e-6,
    "training.epochs": 2,
    "params.variant": "released",
}
DIFFCSE |= {
    "student.pooling": "cls_before_pooler",
    "student.test_pooling": "",
    "params.mask_rate": 0.3,
}
DIFFCSE |= {
    "params.detection_weight": 0.005,
    "params.generator": "distilbert/distilbert-base-uncased",
}
AFTER_SIMCSE_ROWS["diffcse-bert-base"] = ("bert-base", DIFFCSE)
# BDBC-KG-NLP/MixCSE_AAAI2022@884145e, run_unsup_example.sh: without --fp16 and --mlp_only_train.
MIXCSE = {
    **AFTER_SIMCSE,
    "training.learning_rate": 3e-5,
    "training.precision": "float32",
    "params.mixing": 0.2,
}
MIXCSE |= {"params.variant": "released", "selection.validation_pooling": "cls"}
AFTER_SIMCSE_ROWS["mixcse-bert-base"] = ("bert-base", MIXCSE)
# Jiahao004/SimCSE-plus-plus@899e49b, run_re_vicreg.sh and the defaults of train_re_vicreg.py.
PLUS_PLUS = {
    **AFTER_SIMCSE,
    "training.learning_rate": 3e-5,
    "method.off_dropout": True,
    "params.positive_share": 1.0,
}
PLUS_PLUS |= {"params.dimension_weight": 0.1, "params.dimension_temperature": 5.0}
AFTER_SIMCSE_ROWS["simcse-plus-plus-bert-base"] = ("bert-base", PLUS_PLUS)
# kongds/Prompt-BERT@690ba6e, run.sh unsup-bert: 32 tokens of a sentence, in a template of eight and two special ones.
PROMPTED = {
    **AFTER_SIMCSE,
    "student.pooling": "mask",
    "student.test_pooling": "",
    "student.max_length": 32 + 8 + 2,
}
PROMPTED |= {
    "training.batch_size": 256,
    "training.learning_rate": 1e-5,
    "params.validation": "released",
}
PROMPTED |= {
    "params.template": 'This sentence of "{}" means [MASK] .',
    "params.denoise": True,
    "params.head": True,
}
PROMPTED |= {
    "params.second_template": 'This sentence : "{}" means [MASK] .',
    "params.add_full_stop": True,
}
# The readme's scores are means over ten seeds.
AFTER_SIMCSE_ROWS["promptbert-bert-base"] = ("bert-base", {**PROMPTED, "seeds": list(range(10))})
# perceptiveshawty/RankCSE@17c5226, run_rankcse.sh.
RANKED = {
    **AFTER_SIMCSE,
    "training.batch_size": 128,
    "training.learning_rate": 3e-5,
    "params.formulas": "released",
}
RANKED |= {
    "params.teachers": ["diffcse-bert-base", "simcse-bert-large"],
    "params.teacher_weights": [0.33, 0.67],
}
RANKED |= {
    "params.ranking": "listmle",
    "params.ranking_temperature": 0.05,
    "params.consistency_weight": 1.0,
}
AFTER_SIMCSE_ROWS["rankcse-listmle-bert-base"] = ("bert-base", RANKED)
# Wang et al. 2021, section 5, and sentence-transformers' example train_tsdae_from_file.py.
TSDAE = {
    "student.pooling": "cls_before_pooler",
    "training.batch_size": 8,
    "training.learning_rate": 3e-5,
}
TSDAE |= {"training.schedule": "constant", "training.weight_decay": 0.0, "training.steps": 100_000}
TSDAE |= {"params.deletion": 0.6, "params.decoder": "tied", "params.words": "ptb"}
# bojone/CoSENT@124c368, cosent.py, and Keras' Adam; SeanLee97/AnglE@5155458, its readme's training on STS-B.
ON_SCORES = {
    "data.corpus": "stsb_train_pairs",
    "student.pooling": "cls_before_pooler",
    "training.batch_size": 32,
}
ON_SCORES |= {"training.epochs": 5, "training.learning_rate": 2e-5, "training.warmup": 0.0}
COSENT = {
    **ON_SCORES,
    "student.max_length": 64,
    "training.schedule": "constant",
    "training.epsilon": 1e-7,
}
COSENT |= {"training.clip": 0.0, "params.scale": 20.0}
ANGLE = {
    **ON_SCORES,
    "student.max_length": 128,
    "training.precision": "float16",
    "params.positives": "released",
}
ANGLE |= {
    "params.cosine_weight": 1.0,
    "params.contrastive_weight": 1.0,
    "params.angle_weight": 0.02,
}
ANGLE |= {"params.angle_scale": 20.0, "params.cosine_scale": 20.0, "params.temperature": 1 / 20}

COMPARED_ROWS: dict[str, tuple[str, Facts]] = {
    **SBERT_ROWS,
    **CT_ROWS,
    **AFTER_SIMCSE_ROWS,
    "tsdae-bert-base": ("bert-base", TSDAE),
    "cosent-bert-base-stsb": ("bert-base", COSENT),
    "angle-bert-base-stsb": ("bert-base", ANGLE),
    "is-bert-base": ("bert-base", IS_BERT),
    "infersent1": ("", {**INFERSENT, "params.version": 1, "params.vectors": "glove.840B.300d.txt"}),
    "infersent2": ("", {**INFERSENT, "params.version": 2, "params.vectors": "crawl-300d-2M.vec"}),
}
