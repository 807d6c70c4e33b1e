"""The commands: what each is asked for and where its work is. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from stsbench.cli.options import analyses, catalogue, encoders, new, scores
from stsbench.cli.options.binding import bound
from stsbench.cli.options.shared import Options
from stsbench.cli.printing import say

COMMANDS: Mapping[str, tuple[type[Options], str]] = {
    "run": (encoders.RunOptions, "stsbench.cli.run:run_command"),
    "train": (encoders.TrainOptions, "stsbench.cli.train:train_command"),
    "reproduce": (encoders.ReproduceOptions, "stsbench.cli.reproduce:reproduce_command"),
    "sweep": (encoders.SweepOptions, "stsbench.cli.sweep:sweep_command"),
    "list": (catalogue.ListOptions, "stsbench.cli.listing:list_command"),
    "show": (catalogue.ShowOptions, "stsbench.cli.showing:show_command"),
    "doctor": (catalogue.DoctorOptions, "stsbench.cli.doctor:doctor_command"),
    "leaderboard": (scores.LeaderboardOptions, "stsbench.cli.board:leaderboard_command"),
    "export": (scores.ExportOptions, "stsbench.cli.export:export_command"),
    "convert": (encoders.ConvertOptions, "stsbench.cli.convert:convert_command"),
    "compare": (scores.CompareOptions, "stsbench.cli.compare:compare_command"),
    "analyze": (analyses.AnalyzeOptions, "stsbench.cli.analyze:analyze_command"),
    "report": (analyses.ReportOptions, "stsbench.cli.report:report_command"),
    "parity": (scores.ParityOptions, "stsbench.cli.parity:parity_command"),
    "check": (scores.CheckOptions, "stsbench.cli.check:check_command"),
    "lock": (scores.LockOptions, "stsbench.cli.check:lock_command"),
    "verify": (scores.VerifyOptions, "stsbench.cli.verify:verify_command"),
    "timing": (encoders.TimingOptions, "stsbench.cli.timing:timing_command"),
}
"""Each command: its options, whose docstring is its help, and the function that is handed them."""
DATA_COMMANDS: Mapping[str, tuple[type[Options], str]] = {
    "fetch": (catalogue.FetchOptions, "stsbench.cli.data:fetch_command"),
    "verify": (catalogue.VerifyDataOptions, "stsbench.cli.data:verify_data_command"),
    "overlap": (catalogue.OverlapOptions, "stsbench.cli.overlap:overlap_command"),
    "convert-coco": (catalogue.ConvertCocoOptions, "stsbench.cli.data:convert_coco_command"),
    "make": (catalogue.MakeOptions, "stsbench.cli.data:make_command"),
    "back-translate": (catalogue.BackTranslateOptions, "stsbench.cli.translate:back_translate_command"),
}
NEW_COMMANDS: Mapping[str, tuple[type[Options], str]] = {
    "task": (new.NewTaskOptions, "stsbench.cli.new:new_task_command"),
    "encoder": (new.NewEncoderOptions, "stsbench.cli.new:new_encoder_command"),
    "method": (new.NewMethodOptions, "stsbench.cli.new:new_method_command"),
}


def _version(value: bool) -> None:
    if value:
        from stsbench.provenance.machine import version_of

        say(version_of("stsbench"))
        raise typer.Exit


def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Benchmark sentence encoders on STS and SentEval."""
    _help_alone(context)


def data_root(context: typer.Context) -> None:
    """Fetch and verify evaluation data and training text."""
    _help_alone(context)


def new_root(context: typer.Context) -> None:
    """Draft a card for data, an encoder or a method."""
    _help_alone(context)


def _help_alone(context: typer.Context) -> None:
    """Print a command's help where none of its commands is asked for."""
    if context.invoked_subcommand is None:
        say(context.get_help())


app = typer.Typer(
    invoke_without_command=True,
    callback=root,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
data_app = typer.Typer(invoke_without_command=True, callback=data_root)
new_app = typer.Typer(invoke_without_command=True, callback=new_root)
for group, commands in ((app, COMMANDS), (data_app, DATA_COMMANDS), (new_app, NEW_COMMANDS)):
    for name, (options, work) in commands.items():
        group.command(name)(bound(options, work))
app.add_typer(data_app, name="data")
app.add_typer(new_app, name="new")
