"""The executor ``ray``: encoders are embedded by workers with GPUs, or cores without any, and scored by workers with cores."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from stsbench.bench.cells import Cell, RunPart
from stsbench.bench.cluster.hands import Hands
from stsbench.bench.cluster.joining import joined
from stsbench.bench.cluster.pieces import TRIES, Piece, Turn
from stsbench.bench.cluster.worker import Carried, Cause, Handed
from stsbench.bench.crowd import Crowd, Doing
from stsbench.bench.executor import local
from stsbench.bench.existing import done_already
from stsbench.bench.shared import Divisible
from stsbench.bench.tasks import ScoredTask
from stsbench.bench.work import Work, isolated
from stsbench.encoders.engine.embed import BatchShare
from stsbench.encoders.seams import ServedEncoder
from stsbench.results.folder import write_result
from stsbench.results.record import Result


def on_ray(work: Work, parts: Sequence[RunPart]) -> Iterator[Result]:
    """Carry out parts on the workers of Ray; Results are written as they come, and yielded when all are there."""
    if not any(part.missing for part in parts):
        yield from local(work, parts)
        return
    with joined(work.settings.on) as ray:
        yield from ClusterRun(work, Hands(ray, work.settings)).results(parts)


@dataclass
class ClusterRun:
    """A run whose pieces go to many hands."""

    work: Work
    hands: Hands
    crowd: Crowd = field(default_factory=Crowd)
    waiting: deque[RunPart] = field(default_factory=deque)
    """The encoders whose turns have not come."""
    made: dict[Cell, Result] = field(default_factory=dict)
    renewed: set[str] = field(default_factory=set)
    """The encoders whose stored embeddings, and so whose Results, are of before."""

    def results(self, parts: Sequence[RunPart]) -> Iterator[Result]:
        """Carry out the parts and yield the Results of all their cells in order, those that the folder held among them."""
        self.crowd.cells = sum(len(part.missing) for part in parts)
        self.crowd.to_embed = sum(part.to_embed or 0 for part in parts)
        self.waiting.extend(part for part in parts if part.missing)
        try:
            while self.waiting or self.hands.pieces:
                while self.waiting and self.hands.free() > 0:
                    self._begin(self.waiting.popleft())
                for piece, handed in self.hands.ended():
                    self._after(piece, handed)
                self._listen()
        finally:
            self.hands.stop()
        for part in parts:
            yield from self._in_order(part)

    def _begin(self, part: RunPart) -> None:
        """An encoder's turn: compare it with its stored embeddings, where there are some, and embed."""
        with isolated(part.name, self.work.settings, self.work.listener):
            encoder = self.work.encoder(part)
            embedder = self.work.embedder(encoder, list(self.work.seeds(part.cells)), only_look=True)
            packed = self.hands.pack(encoder)
            turn = Turn(part=part, cells=part.missing, embedder=embedder, packed=packed)
            shared = embedder.divisible(self._tasks(turn.cells, turn))
            if shared is None:
                what = f"{part.name}: embedding and scoring"
                self._give(Piece(turn=turn, what=what, cells=turn.cells, embedded=False, sentences=part.to_embed or 0))
            elif shared.engine.shelf.width is not None:
                self._give(Piece(turn=turn, what=f"{part.name}: comparing with stored embeddings", shared=shared))
            else:
                self._divide(turn, shared)

    def _divide(self, turn: Turn, shared: Divisible) -> None:
        """Have an encoder's batches embedded by as many workers as are free for it."""
        missing = len(shared.engine.missing(shared.texts))
        free = max(1, ceil(self.hands.free() / (len(self.waiting) + 1)))
        of = self.work.settings.gpus_per_encoder or free
        if isinstance(shared.engine.encoder, ServedEncoder):
            # Its limits of requests are those of one process.
            of = 1
        for number in range(of if missing else 0):
            what = f"{turn.part.name}: embedding" + (f" {number + 1}/{of}" if of > 1 else "")
            share = BatchShare(number, of)
            self._give(Piece(turn=turn, what=what, shared=shared, share=share, sentences=ceil(missing / of)))
            turn.embedding += 1
        if not missing:
            self._score(turn, shared)

    def _score(self, turn: Turn, shared: Divisible) -> None:
        if not self.hands.is_shared:
            turn.rows = self.hands.ray.put(Carried.of(shared.engine.shelf, shared.texts))
        for task in self._tasks(turn.cells, turn):
            cells = [cell for cell in turn.cells if (cell.task, cell.protocol) == (task.name, task.asked)]
            # What is fitted over another encoder may embed while it is fitted, and is fitted on a GPU where one is.
            heavy = turn.embedder.known(task).fitted_on is not None
            self._give(Piece(turn=turn, what=f"{turn.part.name}: scoring {task.name}", cells=cells, on_device=heavy))

    def _tasks(self, cells: Sequence[Cell], turn: Turn) -> list[ScoredTask]:
        return [task for task in self.work.seeds(cells) if task in turn.embedder.tasks]

    def _give(self, piece: Piece) -> None:
        # Where the store holds nothing, batches are planned over the tasks too that are done.
        tasks = self._tasks(piece.cells if piece.embedded else piece.turn.part.cells, piece.turn)
        wanted = self.work.seeds(piece.cells)
        seeds = {(task.name, task.asked): wanted.get(task, []) for task in tasks}
        self.hands.give(piece, tasks, self.hands.scoring(piece, seeds))

    def _after(self, piece: Piece, handed: Handed) -> None:
        """Keep what a worker hands back, and go on with what follows; what it has not done is tried again."""
        turn = piece.turn
        for line in (*handed.noticed, handed.said):
            # Of what was set aside each score says it again.
            if line not in ("", turn.said):
                self.work.listener.noticed(line)
        self.crowd.end(piece.number, well=handed.failure is None)
        for result in handed.results:
            self._keep(piece, piece.told(result, handed))
        left = [cell for cell in piece.cells if cell not in self.made]
        if left or (handed.failure is not None and piece.shared is not None):
            self._again(replace(piece, cells=left), handed)
        elif piece.shared is not None:
            self._go_on(turn, piece, piece.shared, handed)

    def _go_on(self, turn: Turn, piece: Piece, shared: Divisible, handed: Handed) -> None:
        """What follows on looking at the store is embedding, and on the last share of it scoring."""
        if piece.share is None:
            self._compared(turn, shared, handed)
            return
        turn.embedded(handed, piece.tries)
        turn.embedding -= 1
        if handed.rows is not None:
            handed.rows.put_into(shared.engine.shelf)
        if not turn.embedding and not turn.failed:
            self._score(turn, shared)

    def _compared(self, turn: Turn, shared: Divisible, handed: Handed) -> None:
        """An encoder is compared with its stored embeddings: where they are set aside, its Results are made again too."""
        if handed.said:
            turn.said = handed.said
            self.crowd.cells += len(turn.part.done)
            turn.cells = list(turn.part.cells)
            self.renewed.add(turn.part.name)
            tasks = list(self.work.seeds(turn.cells))
            turn.embedder = self.work.embedder(self.work.encoder(turn.part), tasks, only_look=True)
            shared = turn.embedder.divisible(self._tasks(turn.cells, turn)) or shared
        self._divide(turn, shared)

    def _keep(self, piece: Piece, result: Result) -> None:
        (cell,) = [one for one in piece.cells if (one.task, one.seed) == (result.task, result.eval_seed)]
        if result.per_item:
            write_result(result, self.work.settings.out)
        self.made[cell] = result
        self.crowd.cell(well=True)
        self.work.listener.scored(result)

    def _again(self, piece: Piece, handed: Handed) -> None:
        """Try a piece again, up to a limit; then tell what failed."""
        turn, listener, name = piece.turn, self.work.listener, piece.turn.part.name
        if piece.tries < TRIES and not turn.failed:
            why = piece.failure(handed, piece.cells[0]) if piece.cells else handed.failure or Cause(line="")
            listener.noticed(f"{piece.what}: {why.line}; tried again ({piece.tries + 1} of {TRIES})")
            self._give(replace(piece, tries=piece.tries + 1))
            return
        cells = list(piece.cells)
        if handed.failure is not None and not turn.failed and (piece.shared is not None or not piece.embedded):
            listener.failed(name, handed.failure.error())
            turn.failed, cells = True, cells or turn.cells
        elif not turn.failed:
            for cell in cells:
                listener.failed(f"{name} on {cell.task}", piece.failure(handed, cell).error())
        else:
            cells = []
        for _ in cells:
            self.crowd.cell(well=False)

    def _listen(self) -> None:
        """Tell the listener what the workers do."""
        under_way = {piece.number: piece for piece in self.hands.pieces.values()}
        for told in self.hands.told():
            if (piece := under_way.get(told.piece)) is not None:
                doing = Doing(worker=told.worker, what=piece.what, done=told.done, sentences=piece.sentences)
                self.crowd.tell(told.piece, doing)
        self.crowd.running = sum(len(under_way[key].cells) for key in self.crowd.doing if key in under_way)
        self.work.listener.working(self.crowd)

    def _in_order(self, part: RunPart) -> Iterator[Result]:
        """The Results of a part's cells: those that were made, and those that the folder held."""
        held = [] if part.name in self.renewed else part.done
        with isolated(part.name, self.work.settings, self.work.listener):
            tasks = list(self.work.seeds(held))
            embedder = self.work.embedder(self.work.encoder(part), tasks, only_look=True) if tasks else None
            by_name = {(task.name, task.asked): task for task in tasks}
            for cell in part.cells:
                found = self.made.get(cell)
                if found is None and cell in held and embedder is not None:
                    task = by_name[cell.task, cell.protocol]
                    found = done_already(self.work.settings.out, task, embedder, cell.seed, self.work.listener.refused)
                if found is not None:
                    yield found
