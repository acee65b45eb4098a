"""Read statements about the run from lines of a pipeline-training log that are not records."""

from __future__ import annotations

import re

_SIZE = rb"\d{1,9}(?!\d)"
# Key -> what a line says before the value, and the value. Sizes have the keys of
# tracelake.schema.topology.KEYS: the short statements are the arguments of the training script, the
# long ones come from the library.
_SIZES = {
    "world_size": (rb"> World [Ss]ize: ", _SIZE),
    "micro_batches": (rb"> GAS: ", _SIZE),
    "global_batch_size": (rb"> GBS: ", _SIZE),
    "micro_batch_size": (rb"> MBS: ", _SIZE),
    "tp": (rb"> (?:TP|Tensor Parallel Size): ", _SIZE),
    "dp": (rb"> (?:DP|Data Parallel Size): ", _SIZE),
    "pp": (rb"> (?:PP|Pipeline Parallel Size): ", _SIZE),
}
_OTHERS = {
    "params": (rb"> Total parameters in model: ", rb"\d[\d,]{0,24}"),
    "model": (rb">> model class name: ", rb"\w+"),
    "stages": (rb"stage2rank = ", rb"\{(?:\d{1,9}: \[[\d, ]*\](?:, )?)+\}"),
    "completed": (rb"\[rank:", rb"\d{1,9}(?=, run completed)"),
    "device": (rb"> \[rank:\d+\] pp group:DeviceMesh\('", rb"\w+(?=')"),
    "ir": (rb"(?:> IR|>> ir_analyze): ", rb"[\w.]+"),
    "split_method": (rb">> split method: ", rb"[\w-]+"),
    "gpus_per_server": (rb"Available GPUs per server: ", rb"\d+"),
    "data_size": (rb"data_size=", rb"\d+"),
    "nbatches": (rb"nbatches=", rb"\d+"),
    "elapsed_s": (rb"Time elapsed: ", rb"\d+(?:\.\d+)?(?= sec)"),
}
_STATEMENT = re.compile(
    b"|".join(
        rb"%b(?P<%b>%b)" % (before, key.encode(), value)
        for key, (before, value) in (_SIZES | _OTHERS).items()
    )
)
_STAGE = re.compile(rb"(\d+): \[([\d, ]*)\]")
_MOST_PARAMS = 2**63 - 1


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
        """Read the statements of a line; return whether it has any."""
        start = 0
        # Where ranks write on the same line, a statement may begin inside another.
        while found := _STATEMENT.search(text, start):
            start = found.start() + 1
            key = str(found.lastgroup)
            self._keep(line, key, found[key])
        return start > 0

    def _keep(self, line: int, key: str, value: bytes) -> None:
        if key in _SIZES:
            if int(value):
                self.topology.setdefault(key, int(value))
        elif key == "params" and (params := int(value.replace(b",", b""))) <= _MOST_PARAMS:
            self.params = self.params or params
        elif key == "model":
            self.model = self.model or value.decode()
        elif key == "stages":
            self._read_stages(line, value)
        elif key == "completed":
            self.completed.add(int(value))
        else:
            self.attributes.setdefault(key, value.decode())

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
