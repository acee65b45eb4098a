"""Read statements about the run from lines of a pipeline-training log that are not records."""

from __future__ import annotations

import re

# Statement -> key of tracelake.schema.topology.KEYS. The short ones are the arguments of the
# training script, the long ones come from the library.
_SIZES = {
    b"World size": "world_size",
    b"World Size": "world_size",
    b"GAS": "micro_batches",
    b"GBS": "global_batch_size",
    b"MBS": "micro_batch_size",
    b"TP": "tp",
    b"DP": "dp",
    b"PP": "pp",
    b"Tensor Parallel Size": "tp",
    b"Data Parallel Size": "dp",
    b"Pipeline Parallel Size": "pp",
}
_SIZE = re.compile(rb"> (" + b"|".join(_SIZES) + rb"): (\d{1,9})(?!\d)")
_MOST_PARAMS = 2**63 - 1
_PARAMS = re.compile(rb"> Total parameters in model: (\d[\d,]{0,24})")
_MODEL = re.compile(rb">> model class name: (\w+)")
_STAGES = re.compile(rb"stage2rank = (\{(?:\d{1,9}: \[[\d, ]*\](?:, )?)+\})")
_STAGE = re.compile(rb"(\d+): \[([\d, ]*)\]")
_MESH = re.compile(rb"> \[rank:\d+\] pp group:DeviceMesh\('(\w+)'")
_COMPLETED = re.compile(rb"\[rank:(\d{1,9}), run completed")
_TEXTS = {
    "ir": re.compile(rb"(?:> IR|>> ir_analyze): ([\w.]+)"),
    "split_method": re.compile(rb">> split method: ([\w-]+)"),
    "gpus_per_server": re.compile(rb"Available GPUs per server: (\d+)"),
    "data_size": re.compile(rb"data_size=(\d+)"),
    "nbatches": re.compile(rb"nbatches=(\d+)"),
    "elapsed_s": re.compile(rb"Time elapsed: (\d+(?:\.\d+)?) sec"),
}
# A line without any of these has no statement, as most lines.
_ANY = re.compile(
    rb"> |stage2rank = |, run completed|Available GPUs|data_size=|nbatches=|Time elapsed: "
)


class Statements:
    """Collects the statements of one log; of repeated statements the first counts.

    Attributes:
        topology: Sizes by key of `tracelake.schema.topology.KEYS`.
        attributes: Everything else but the model and its parameters, as written.
        stages: Line of the map of stages to ranks, and the map.
        completed: Ranks that printed that their run is completed.
    """

    def __init__(self) -> None:
        self.topology: dict[str, int] = {}
        self.model: str | None = None
        self.params: int | None = None
        self.attributes: dict[str, str] = {}
        self.stages: tuple[int, dict[int, tuple[int, ...]]] | None = None
        self.completed: set[int] = set()

    def read(self, line: int, text: bytes) -> bool:
        """Read the statement of a line; return whether it has one."""
        if not _ANY.search(text):
            return False
        known = False
        for name, value in _SIZE.findall(text):
            known = True
            if int(value):
                self.topology.setdefault(_SIZES[name], int(value))
        for value in _PARAMS.findall(text):
            known = True
            params = int(value.replace(b",", b""))
            if params <= _MOST_PARAMS:
                self.params = self.params or params
            else:
                self.attributes.setdefault("params", value.decode())
        for value in _MODEL.findall(text):
            known = True
            self.model = self.model or value.decode()
        for value in _STAGES.findall(text):
            known = True
            self._read_stages(line, value)
        for value in _MESH.findall(text):
            known = True
            self.attributes.setdefault("device", value.decode())
        for value in _COMPLETED.findall(text):
            known = True
            self.completed.add(int(value))
        for key, pattern in _TEXTS.items():
            for value in pattern.findall(text):
                known = True
                self.attributes.setdefault(key, value.decode())
        return known

    def _read_stages(self, line: int, text: bytes) -> None:
        if self.stages is not None:
            return
        self.attributes["stage2rank"] = text.decode()
        self.stages = (
            line,
            {
                int(stage): tuple(int(rank) for rank in re.findall(rb"\d{1,9}", ranks))
                for stage, ranks in _STAGE.findall(text)
            },
        )
        self.topology.setdefault("pp", len(self.stages[1]))

    @property
    def closed(self) -> bool:
        """Tell whether the closing lines are there: of all ranks, or of the one that prints."""
        world = self.topology.get("world_size")
        if world is None or not self.completed:
            return "elapsed_s" in self.attributes
        return all(rank in self.completed for rank in range(world))
