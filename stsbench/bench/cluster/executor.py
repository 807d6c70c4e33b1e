"""The executor ``ray``: encoders are embedded by workers with GPUs, or cores without any, and scored by workers with cores."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from stsbench.bench.cells import Cell, RunPart, RunSettings
from stsbench.bench.cluster import worker
from stsbench.bench.cluster.hands import TRIES, Hands, Lost, Piece, Turn
from stsbench.bench.cluster.joining import Reference, files_lent, joined
from stsbench.bench.cluster.worker import Handed, InStore, blocks_of, write_missing
from stsbench.bench.crowd import Crowd, Doing
from stsbench.bench.executor import local
from stsbench.bench.existing import done_already
from stsbench.bench.shared import Divisible
from stsbench.bench.tasks import ScoredTask
from stsbench.bench.work import Work, isolated
from stsbench.encoders.engine.embed import BatchShare
from stsbench.encoders.seams import TokenEncoder
from stsbench.errors import StsbenchError, one_line
from stsbench.results.folder import write_result
from stsbench.results.record import Result


def on_ray(work: Work, parts: Sequence[RunPart]) -> Iterator[Result]:
    """Carry out parts on the workers of Ray; Results are written as they come, and yielded when all are there."""
    if not any(part.missing for part in parts):
        yield from local(work, parts)
        return
    with joined(work.settings.on) as ray, files_lent(ray):
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
            turn = Turn(part=part, cells=part.missing, encoder=self.hands.put(encoder), embedder=embedder)
            turn.shared = embedder.divisible(self._tasks(turn, turn.cells))
            if turn.shared is None:
                # Kept in memory alone, batches are planned over the tasks too that are done.
                self._score(turn, self._tasks(turn, part.cells), None)
            elif turn.shared.engine.shelf.width is not None:
                what, given = f"{part.name}: comparing with stored embeddings", [turn.encoder, self.settings.store]
                self.hands.give(Piece(turn=turn, what=what, work=worker.see_stored, given=given, then=self._compared))
            else:
                self._divide(turn, turn.shared)

    @property
    def settings(self) -> RunSettings:
        """As workers are told them."""
        return self.hands.workers_settings

    def _compared(self, piece: Piece, handed: Handed) -> None:
        """An encoder is compared with its stored embeddings: where they are set aside, its Results are made again too."""
        turn = piece.turn
        if handed.said:
            turn.said = handed.said
            self.crowd.cells += len(turn.part.done)
            turn.cells = list(turn.part.cells)
            self.renewed.add(turn.part.name)
            tasks = list(self.work.seeds(turn.cells))
            turn.embedder = self.work.embedder(self.work.encoder(turn.part), tasks, only_look=True)
            turn.shared = turn.embedder.divisible(self._tasks(turn, turn.cells))
        if turn.shared is not None:
            self._divide(turn, turn.shared)

    def _divide(self, turn: Turn, shared: Divisible) -> None:
        """Have an encoder's batches embedded by as many workers as are free for it."""
        missing = len(shared.engine.missing(shared.texts))
        if not missing:
            self._score_each(turn)
            return
        free = max(1, ceil(self.hands.free() / (len(self.waiting) + 1)))
        of = turn.embedding = self.settings.gpus_per_encoder or free
        name, tokens = turn.part.name, list[Reference]()
        held = self.hands.keep(tuple(shared.texts), lambda texts: sorted(set(texts)))
        # On a GPU a worker is there for one piece: to tokenise in another would load the weights twice.
        if of > 1 and not self.hands.gpus and isinstance(shared.engine.encoder, TokenEncoder):
            tokens = self.hands.tokens(f"{name}: tokenising", turn.encoder, held, of)
        for number in range(of):
            given = [turn.encoder, held, BatchShare(number, of), self.settings.store, self.hands.is_shared, *tokens]
            what = f"{name}: embedding" + (f" {number + 1}/{of}" if of > 1 else "")
            then, share = self._embedded, ceil(missing / of)
            self.hands.give(Piece(turn=turn, what=what, work=worker.embed, given=given, then=then, sentences=share))

    def _embedded(self, piece: Piece, handed: Handed) -> None:
        """A share is embedded; after the last of them the encoder is scored."""
        turn = piece.turn
        turn.embedding -= 1
        turn.encoded.extend(handed.encoded)
        turn.seconds, turn.workers = turn.seconds + handed.seconds, turn.workers + 1
        turn.tries, turn.device = max(turn.tries, piece.tries), handed.device or turn.device
        if turn.shared is not None and turn.shared.engine.shelf.folder is not None:
            write_missing(handed.blocks, turn.shared.engine.shelf.folder)
        if not turn.embedding and not turn.failed:
            self._score_each(turn)

    def _score_each(self, turn: Turn) -> None:
        """Have each task scored by a worker of its own, on what is embedded."""
        blocks = blocks_of(turn.shared.engine.shelf) if turn.shared is not None and not self.hands.is_shared else {}
        embedded = self.hands.put(InStore(turn.encoded, turn.said, blocks))
        for task in self._tasks(turn, turn.cells):
            self._score(turn, [task], embedded)

    def _score(self, turn: Turn, tasks: Sequence[ScoredTask], embedded: Reference | None) -> None:
        """Have tasks scored by one worker: one on what is embedded, or all of an encoder that it embeds itself."""
        keys, name = {(task.name, task.asked) for task in tasks}, turn.part.name
        cells = [cell for cell in turn.cells if (cell.task, cell.protocol) in keys]
        wanted = self.work.seeds(cells)
        seeds = [wanted.get(task, []) for task in tasks]
        given = [turn.encoder, self.settings, seeds, embedded, *map(self.hands.keep, tasks)]
        piece = Piece(turn=turn, what="", work=worker.score, given=given, then=self._scored, cells=cells)
        if embedded is None:
            whole = replace(piece, what=f"{name}: embedding and scoring", sentences=turn.part.to_embed or 0)
            self.hands.give(whole)
            return
        # What is fitted over another encoder may embed while it is fitted, and is fitted on a GPU where one is.
        fitted = turn.embedder.known(tasks[0]).fitted_on is not None
        task = tasks[0].name
        self.hands.give(replace(piece, what=f"{name}: scoring {task}", task=task, on_device=fitted))

    def _tasks(self, turn: Turn, cells: Sequence[Cell]) -> list[ScoredTask]:
        return [task for task in self.work.seeds(cells) if task in turn.embedder.tasks]

    def _scored(self, piece: Piece, handed: Handed) -> None:
        """Keep the Results, and tell what could not be scored."""
        turn, facts = piece.turn, {"on": "ray", "tries": piece.tries, "device": handed.device or piece.turn.device}
        if turn.workers:
            facts |= {"embedding_seconds": round(turn.seconds, 3), "embedding_workers": turn.workers}
            facts |= {"embedding_tries": turn.tries}
        for result in handed.results:
            (cell,) = [one for one in piece.cells if (one.task, one.seed) == (result.task, result.eval_seed)]
            result.run.update(facts)
            if result.per_item:
                write_result(result, self.work.settings.out)
            self.made[cell] = result
            self.crowd.cell(well=True)
            self.work.listener.scored(result)
        for what, error in handed.failed:
            self.work.listener.failed(what, error)
        for _ in range(len(piece.cells) - len(handed.results)):
            self.crowd.cell(well=False)

    def _after(self, piece: Piece, handed: Handed | Exception) -> None:
        """Go on with what follows on a piece; what was lost on the way is tried again."""
        self.crowd.end(piece.number, well=isinstance(handed, Handed))
        if isinstance(handed, Exception):
            self._failed(piece, handed)
            return
        for line in (*handed.noticed, handed.said):
            # Of what was set aside each score says it again.
            if line not in ("", piece.turn.said):
                self.work.listener.noticed(line)
        piece.then(piece, handed)

    def _failed(self, piece: Piece, error: Exception) -> None:
        """Try a piece again, up to a limit and where it may help; then tell what failed."""
        turn, listener, name = piece.turn, self.work.listener, piece.turn.part.name
        if turn.failed:
            return
        # What an encoder or a file is wrong in, is wrong the next time too.
        if piece.tries < TRIES and (isinstance(error, Lost) or not isinstance(error, StsbenchError)):
            listener.noticed(f"{piece.what}: {one_line(error)}; tried again ({piece.tries + 1} of {TRIES})")
            self.hands.give(replace(piece, tries=piece.tries + 1))
            return
        turn.failed = not piece.task
        listener.failed(f"{name} on {piece.task}" if piece.task else name, error)
        for _ in piece.cells or turn.cells:
            self.crowd.cell(well=False)

    def _listen(self) -> None:
        """Tell the listener what the workers do."""
        under_way = {piece.number: piece for piece in self.hands.pieces.values()}
        for number, who, done in self.hands.told():
            if (piece := under_way.get(number)) is not None:
                self.crowd.tell(number, Doing(worker=who, what=piece.what, done=done, sentences=piece.sentences))
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
