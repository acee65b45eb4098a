"""Read what a job prints about itself: its sizes, its length, and the interval of its records."""

from __future__ import annotations

import math
import re
from typing import Any

from tracelake.formats.ledger import SIZES_CHANGED, Fault
from tracelake.formats.readers import whole

# Of an arguments dump: Megatron-LM, behind whatever a logger or collector writes, and YAML.
_ARGUMENT = re.compile(r"(?:.*\s)?(\w+) \.{2,} ?([^\s.]\S*?),?\s*", re.ASCII)
_NEOX_ARGUMENT = re.compile(r"\s*(\w+) \.{2,} (\d+)\.{3,}(?:default|updated)\s*", re.ASCII)
_CONFIG = re.compile(r".*\[config\.py:\d+:print\] +(\w+)[ .]+(\d+)\s*", re.ASCII)
_MAXTEXT_ARGUMENT = re.compile(r".*\bConfig param (\w+): (\S+)\s*", re.ASCII)
_MAXTEXT_DEVICES = re.compile(r".*\bNum_devices: (?P<world_size>\d+), shape .*", re.ASCII)
# Of nanotron: of its configuration, and of the line where it begins to train.
_NANOTRON_SIZE = re.compile(
    r".*\|TP=\d+[^\]]*\]: +(?:parallelism=ParallelismArgs\()?(\w+)=(\d+),\s*", re.ASCII
)
_NANOTRON_START = re.compile(
    r".*\[Start training\] datetime: .* \| mbs: (?P<micro_batch_size>\d+) .*"
    r"\| global_batch_size: (?P<global_batch_size>\d+)"
    r" \| sequence_length: (?P<seq_length>\d+) \|.*",
    re.ASCII,
)
_MESH = re.compile(r".*Building \d-D device mesh with \[([^\]]*)\], \[([\d, ]*)\].*", re.ASCII)
# Since 2025, with sizes of 1 too.
_PARALLELISM = re.compile(r".*Building device mesh with parallelism: ([\w=, ]+).*", re.ASCII)
_PLAN = re.compile(
    r".*(?:Training starts at step \d+|Trainer is initialized with).*global batch size (\d+),"
    r".* sequence length (\d+), total steps (\d+).*",
    re.ASCII,
)
MODEL = r".*\bBuilding (\w[\w.-]* \w[\w.-]*) with \w*Args\(.*"
"""Expression of the line in which torchtitan names its model."""
_MODEL = re.compile(MODEL, re.ASCII)
_DATETIME = re.compile(r".*\] datetime: (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?) *", re.ASCII)
# Of the Trainer of Hugging Face, behind a logger or not.
EXAMPLES, EPOCHS, STEPS = "Num examples", "Num Epochs", "Total optimization steps"
BATCH = "Total train batch size"
_MICRO_BATCH, _ACCUMULATION = "Instantaneous batch size per device", "Gradient Accumulation steps"
_TRAINABLE = "Number of trainable parameters"
_WORDS = "|".join((EXAMPLES, EPOCHS, STEPS, BATCH, _MICRO_BATCH, _ACCUMULATION, _TRAINABLE))
HEADING = rf".*(?:Running training \*+|(?:{_WORDS})[^=]* = [\d,]+(?:\.0)?)\s*"
"""Expression of the lines of the heading of a job."""

_HEADING = re.compile(
    rf".*(?:\*{{5}} Running training \*{{5}}|\b({_WORDS})(?: \(w\. parallel[^)]*\))?"
    r" = (\d[\d,]{0,15})(?:\.0)?)\s*",
    re.ASCII,
)
_HEADS = (" training ***", " = ")  # to look for that takes a tenth of the time
_SIZES = {
    "world size": "world_size",
    "data-parallel[ -]size": "dp",
    "context-parallel size": "cp",
    "tensor-model-parallel size": "tp",
    "pipeline-model-parallel size": "pp",
}
_ARGUMENTS = {
    "world_size": "world_size",
    "data_parallel_size": "dp",
    "tensor_model_parallel_size": "tp",
    "pipeline_model_parallel_size": "pp",
    "virtual_pipeline_model_parallel_size": "vpp",
    "context_parallel_size": "cp",
    "expert_model_parallel_size": "ep",
    "micro_batch_size": "micro_batch_size",
    "global_batch_size": "global_batch_size",
    "num_layers": "layers",
}
_CONFIGS = {
    "train_batch_size": "global_batch_size",
    "train_micro_batch_size_per_gpu": "micro_batch_size",
}
_NEOX_ARGUMENTS = {
    "model_parallel_size": "tp",
    "pipe_parallel_size": "pp",
    "num_layers": "layers",
    **_CONFIGS,
}
_MAXTEXT_ARGUMENTS = {
    "global_batch_size_to_train_on": "global_batch_size",
    "num_decoder_layers": "layers",
    "max_target_length": "seq_length",
    "emb_dim": "hidden_size",
    "steps": "train_iters",
}
_NANOTRON_SIZES = {
    "dp": "dp",
    "pp": "pp",
    "tp": "tp",
    "context_parallel_size": "cp",
    "num_hidden_layers": "layers",
}
_KEPT = {
    *("hidden_size", "seq_length", "log_interval", "gradient_accumulation_steps"),
    *("ffn_hidden_size", "num_experts"),
}
ARGUMENTS = tuple(sorted({*_ARGUMENTS, *_KEPT}))
"""Names of the arguments that are read where they are printed as YAML."""
_YAML_ARGUMENT = re.compile(rf"\s*({'|'.join(ARGUMENTS)}): (\d+),?\s*", re.ASCII)
_ARGUMENTS_OF = (
    (_CONFIG, _CONFIGS),  # its world size is that of data parallelism
    (_NEOX_ARGUMENT, _NEOX_ARGUMENTS),
    (_ARGUMENT, _ARGUMENTS),
    (_YAML_ARGUMENT, _ARGUMENTS),
    (_MAXTEXT_ARGUMENT, _MAXTEXT_ARGUMENTS),
    (_NANOTRON_SIZE, _NANOTRON_SIZES),
)


class JobLines:
    """Reads what the job of a file prints about itself; another job may follow it in the file.

    Attributes:
        sizes: Sizes of the job that prints now.
        total: Steps that it is to train, 0 where it does not say so.
        interval: Steps between its records, where it prints that.
        attributes: Values without a column.
        heading: What the Trainer of Hugging Face says of its job, by the words for it.
        model: Name of its model, and `params` how many parameters it has, where it says so.
        stopped: It says that it ends now as it was told, after so many steps or minutes.
    """

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self.total = 0
        self.interval: int | None = None
        self.attributes: dict[str, str] = {}
        self.heading: dict[str, int] = {}
        self.model: str | None = None
        self.params: int | None = None
        self.stopped = False
        self._before: dict[str, int] = {}  # sizes of the rows before
        self._fresh: set[str] = set()  # sizes that were printed since the last row
        self._changed = False

    def read(self, text: str) -> bool:
        """Keep what a line says about the job; return whether it is a line about that."""
        self.stopped |= "Signaling Trainer to stop" in text  # of Lightning, at its time limit
        if "using world size" in text:
            self._fresh.clear()  # a job begins; the one before may have ended without a record
            for words, key in _SIZES.items():
                if found := re.search(rf"{words}: +(\d{{1,9}})", text, re.ASCII):
                    self._keep(key, int(found[1]))
        elif any(word in text for word in _HEADS) and (found := _HEADING.fullmatch(text)):
            self._head(found[1], found[2])
        elif found := _DATETIME.fullmatch(text):
            self.attributes["last_datetime"] = found[1]
            self.stopped = "[exiting program " in text
        elif found := _MODEL.fullmatch(text):
            self.model = found[1]
        elif found := _MESH.fullmatch(text):
            sizes = [int(size) for size in re.findall(r"\d+", found[2]) if len(size) < 10]
            self._mesh(dict(zip(re.findall(r"\w+", found[1]), sizes, strict=False)))
        elif found := _PARALLELISM.fullmatch(text):
            named = re.findall(r"(\w+)=(\d{1,9})\b", found[1])
            self._mesh({name: int(size) for name, size in named})
        elif found := _PLAN.fullmatch(text):
            self._size("global_batch_size", "", found[1])
            self._size(None, "seq_length", found[2])
            self.total = whole(found[3], 31)
        elif found := _MAXTEXT_DEVICES.fullmatch(text) or _NANOTRON_START.fullmatch(text):
            for size, digits in found.groupdict().items():
                self._size(size, "", digits)
        else:
            return self._argument(text)
        return True

    def _argument(self, text: str) -> bool:
        """Keep the value of an argument; return whether the line has one."""
        for pattern, names in _ARGUMENTS_OF:
            if found := pattern.fullmatch(text):
                self._size(names.get(found[1]), found[1], found[2])
                return True
        return False

    def _head(self, words: str | None, text: str) -> None:
        """Keep a line of the heading; its first one has no words."""
        if words is None:
            self._fresh.clear()
            self.heading.clear()
            return
        # Evaluations have a heading of the same words.
        self.heading.setdefault(words, int(text.replace(",", "")))
        self.params = self.heading.get(_TRAINABLE)
        batch, micro = self.heading.get(BATCH, 0), self.heading.get(_MICRO_BATCH, 0)
        if words == _ACCUMULATION and batch:  # loops of others that print it have no batch
            each = micro * self.heading[words]
            shares = batch // each if each and batch % each == 0 else 0
            for size, value in (("global_batch_size", batch), ("micro_batch_size", micro)):
                self._size(size, "", str(value))
            self._size("dp", "", str(shares))
            self._size(None, "gradient_accumulation_steps", str(self.heading[words]))

    def _size(self, size: str | None, key: str, text: str) -> None:
        """Keep a size of the job by the name of its column, or else of its argument."""
        if not re.fullmatch("[1-9][0-9]{0,8}", text):
            return
        if "train_iters" in (size, key):
            self.total = self.total or int(text)
        elif size or key in _KEPT:
            self._keep(size or key, int(text))

    def _keep(self, key: str, size: int) -> None:
        """Keep a size; of several that are printed without a row in between the first counts."""
        if key in self._fresh:
            return
        self._fresh.add(key)
        self.sizes[key] = size
        if key == "log_interval":
            self.interval = size

    def _differences(self) -> list[str]:
        """Return the sizes that are not those of the rows before."""
        return [
            f"{key} {self._before[key]}, then {size}"
            for key, size in self.sizes.items()
            if key != "log_interval" and self._before.get(key, size) != size
        ]

    @property
    def is_fresh(self) -> bool:
        """Return whether sizes were printed since the last row."""
        return bool(self._fresh)

    def changes(self) -> list[tuple[Fault, dict[str, Any]]]:
        """Return the fault if a row comes with other sizes than the rows before."""
        if not self._fresh:
            return []
        changed = self._differences()
        self._changed |= bool(changed)
        self._before = dict(self.sizes)
        self._fresh.clear()
        return [(SIZES_CHANGED, {"text": "; ".join(changed)})] if changed else []

    def _mesh(self, named: dict[str, int]) -> None:
        """Keep the sizes of torchtitan's mesh of devices."""
        # Expert parallelism divides the ranks of the others once more.
        world = math.prod(size for name, size in named.items() if name not in ("ep", "etp"))
        if not named or not 0 < world < 1 << 31:
            return
        self._fresh.clear()
        self._keep("world_size", world)
        shards = [size for name, size in named.items() if name.startswith("dp")]
        sized = {key: size for key, size in named.items() if key in ("tp", "pp", "cp", "ep")}
        if shards:
            sized["dp"] = math.prod(shards)
        for key in ("tp", "pp", "cp", "dp", "ep"):
            # The mesh of early versions has no dimension of size 1.
            if key in sized or (key in self.sizes and key != "ep"):
                self._keep(key, sized.get(key, 1))

    def finish(self) -> tuple[dict[str, int], dict[str, str]]:
        """Return the sizes that hold for all rows, and those without a column as attributes."""
        # What was printed after the last row is perhaps of a job that ended without one.
        sizes = dict(self._before if self._differences() else self.sizes)
        if self._changed:
            sizes = {}
        attributes = {key: str(sizes.pop(key)) for key in [*sizes] if key in _KEPT}
        return sizes, attributes | self.attributes
