"""Asking a model for answers: greedy generation and likelihoods, with the prompts' common prefix computed once.

All give what the ordinary code gives (a loop over rows with `model.generate`, or over rows and labels or completions),
whatever the batch size and the order of the rows.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain

import torch
from transformers import PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from reprolora.engine import last_layer, lora
from reprolora.engine.batches import token_batches
from reprolora.engine.ragged import ATTENTION, ContinuationPlan, PrefixPlan, longest_common_prefix, shared_with_previous
from reprolora.memory import keep_freed_memory

log = logging.getLogger(__name__)

# More tokens than this in one pass bring a CPU or a GPU nothing, and cost memory.
LARGEST_BATCH = 4096
# As many numbers as one tensor of logits may have: 128 MiB of them in fp32.
LARGEST_LOGITS = 2**25
# The share of a GPU's free memory that one batch may plan to use; the rest is for what is allocated on the way.
MEMORY_SHARE = 0.5


def fitting_batch_tokens(model: PreTrainedModel) -> int:
    """How many tokens to run at once: what the device's free memory holds, at most `LARGEST_BATCH`."""
    if model.device.type != "cuda":
        return LARGEST_BATCH
    config = model.config.get_text_config()
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    cached = 2 * config.num_hidden_layers * heads * head_dim
    in_flight = 8 * config.hidden_size + 4 * config.intermediate_size
    free, _ = torch.cuda.mem_get_info(model.device)
    tokens = int(free * MEMORY_SHARE) // ((cached + in_flight) * model.dtype.itemsize)
    return max(1, min(LARGEST_BATCH, tokens))


@torch.no_grad()
def generate(
    model: PreTrainedModel,
    prompts: Sequence[list[int]],
    max_new_tokens: int,
    terminators: Collection[int],
    batch_tokens: int | None = None,
) -> list[list[int]]:
    """Greedy answers to `prompts` (token ids), without the terminator that ended them; as long as `max_new_tokens`."""
    answers: list[list[int]] = [[] for _ in prompts]

    def run(passes: "_Passes", rows: list[int]) -> None:
        for row in rows:
            answers[row] = []  # of a larger batch, for which the memory did not last
        plan, logits = passes.first([prompts[row] for row in rows])
        for step in range(max_new_tokens):
            tokens = logits.argmax(-1).tolist()
            going = [index for index, token in enumerate(tokens) if token not in terminators]
            for index in going:
                answers[rows[index]].append(tokens[index])
            if step == max_new_tokens - 1 or not going:
                return
            if len(going) < len(rows):
                rows = [rows[index] for index in going]
                plan.keep(going)
            last = [[answers[row][-1]] for row in rows]
            visible = torch.ones(1, step + 1, dtype=torch.bool, device=model.device)
            logits = passes.next(plan, last, torch.tensor([step], device=model.device), visible)[:, 0]

    _in_batches(model, prompts, batch_tokens, run)
    return answers


@torch.no_grad()
def label_log_probabilities(
    model: PreTrainedModel,
    prompts: Sequence[list[int]],
    labels: Sequence[list[int]],
    batch_tokens: int | None = None,
) -> torch.Tensor:
    """Log-probability of each label's tokens after each prompt: [prompts, labels], float64, on the CPU.

    The labels form a prefix tree: a beginning that several share is run once, and a label's last token, which predicts
    nothing that is asked, is not run at all. No label may be the beginning of another (give them their terminator).
    """
    tree = _LabelTree(labels)
    scores = torch.zeros(len(prompts), len(labels), dtype=torch.float64)

    def run(passes: "_Passes", rows: list[int]) -> None:
        plan, logits = passes.first([prompts[row] for row in rows])
        nodes = logits[:, None].log_softmax(-1, dtype=torch.float32)  # [rows, 1 + inner nodes, vocabulary]
        if tree.tokens:
            device = model.device
            inner = passes.next(
                plan, [tree.tokens] * len(rows), torch.tensor(tree.depth, device=device), tree.visible.to(device)
            )
            nodes = torch.cat([nodes, inner.log_softmax(-1, dtype=torch.float32)], 1)
        for label, path in enumerate(tree.paths):
            node, token = (torch.tensor(column, device=nodes.device) for column in zip(*path, strict=True))
            scores[rows, label] = nodes[:, node, token].double().sum(1).cpu()

    _in_batches(model, prompts, batch_tokens, run)
    return scores


@torch.no_grad()
def completion_log_probabilities(
    model: PreTrainedModel,
    prompts: Sequence[list[int]],
    completions: Sequence[Sequence[list[int]]],
    batch_tokens: int | None = None,
) -> list[list[torch.Tensor]]:
    """Log-probability of every token of each prompt's own completions: for each [tokens], float64, on the CPU.

    A prompt runs once for all its completions, and what all prompts begin with once for all prompts.
    """
    scores = [[torch.empty(len(ids), dtype=torch.float64) for ids in own] for own in completions]
    head = _Head(model)
    budget = batch_tokens or fitting_batch_tokens(model)

    def run(passes: "_Passes", rows: list[int]) -> None:
        plan, logits = passes.first([prompts[row] for row in rows])
        # (place in the batch, the completion's tokens, its scores)
        branches = [
            (place, ids, found)
            for place, row in enumerate(rows)
            for ids, found in zip(completions[row], scores[row], strict=True)
        ]
        if not branches:
            return
        first = logits.log_softmax(-1, dtype=torch.float32)
        at = [place for place, _, _ in branches], [ids[0] for _, ids, _ in branches]
        for (_, _, found), value in zip(branches, first[at].double().cpu(), strict=True):
            found[0] = value
        branches = [branch for branch in branches if len(branch[1]) > 1]
        # Each branch has its row's keys copied for it, one layer at a time; a key takes a tenth of a token's memory.
        keys = (passes.length + plan.rows.longest) // 10
        for chosen in token_batches([len(ids) + keys for _, ids, _ in branches], budget):
            places, some, found = zip(*(branches[branch] for branch in chosen), strict=True)
            states = passes.branch(plan, places, [ids[:-1] for ids in some])
            targets = torch.tensor(list(chain(*(ids[1:] for ids in some))), device=states.device)
            values = head.log_probabilities(states, targets).split([len(ids) - 1 for ids in some])
            for scores_of_branch, value in zip(found, values, strict=True):
                scores_of_branch[1:] = value

    _in_batches(model, prompts, budget, run)
    return scores


class _Head:
    """What a model does with the states of its last layer, on so many at a time that the logits take little memory."""

    def __init__(self, model: PreTrainedModel):
        self.output = model.get_output_embeddings()
        self.soft_cap = getattr(model.config.get_text_config(), "final_logit_softcapping", None)
        self.slice = max(1, LARGEST_LOGITS // model.config.get_text_config().vocab_size)

    def log_probabilities(self, states: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Log-probability of `targets` [tokens] by the last layer's `states` [tokens, hidden]; float64, on the CPU."""
        found = []
        for some, wanted in zip(states.split(self.slice), targets.split(self.slice), strict=True):
            logits = self.output(some)
            if self.soft_cap:
                logits = torch.tanh(logits / self.soft_cap) * self.soft_cap
            logits = logits.float()
            chosen = logits.gather(1, wanted[:, None]).squeeze(1)
            found.append((chosen - logits.logsumexp(1)).double().cpu())
        return torch.cat(found)


class _LabelTree:
    """The inner nodes of the labels' prefix tree, each after its parent.

    `paths` gives for each label its (node, token) steps: the log-probability of `token` is read at `node`, where node
    0 is the prompt's end and node k the k-th inner one.
    """

    def __init__(self, labels: Sequence[list[int]]):
        self.tokens: list[int] = []
        self.depth: list[int] = []
        self.paths: list[list[tuple[int, int]]] = []
        node_of: dict[tuple[int, ...], int] = {(): 0}
        for ids in labels:
            path = []
            for length, token in enumerate(ids):
                parent = tuple(ids[:length])
                if parent not in node_of:
                    self.tokens.append(parent[-1])
                    self.depth.append(length - 1)
                    node_of[parent] = len(self.tokens)
                path.append((node_of[parent], token))
            self.paths.append(path)
        if any(tuple(ids) in node_of for ids in labels):
            raise ValueError("one label's tokens begin another's; end each with its terminator")
        self.visible = torch.zeros(len(self.tokens), len(self.tokens), dtype=torch.bool)
        for beginning, node in node_of.items():
            for length in range(1, len(beginning) + 1):
                self.visible[node - 1, node_of[beginning[:length]] - 1] = True


class _Passes:
    """Forward passes over rows that share the first tokens; the shared part runs once, here."""

    def __init__(self, model: PreTrainedModel, read: last_layer.ReadPlaces, prompts: Sequence[list[int]]):
        self.model, self.read = model, read
        # Every prompt keeps a token of its own, whose place predicts the first token of the answer.
        self.length = min(longest_common_prefix(prompts), min(map(len, prompts)) - 1)
        self.prefix = PrefixPlan() if self.length else None
        if self.prefix:
            positions = torch.arange(self.length, device=model.device)[None]
            self._forward([prompts[0][: self.length]], positions, self.prefix, positions[0, -1:])

    def first(self, prompts: Sequence[list[int]]) -> tuple[ContinuationPlan, torch.Tensor]:
        """Run the prompts; returns the plan to go on with and the logits at their ends [rows, vocabulary]."""
        rest = [prompt[self.length :] for prompt in prompts]
        lengths = [len(tokens) for tokens in rest]
        shared = shared_with_previous(rest, [length - 1 for length in lengths])
        plan = ContinuationPlan(self.prefix, lengths, shared, self.model.device)
        own = chain(*(tokens[count:] for tokens, count in zip(rest, shared, strict=True)))
        output = self._forward([list(own)], plan.position_ids, plan, plan.rows.last)
        return plan, output.logits[0]

    def next(self, plan: ContinuationPlan, tokens: list[list[int]], depth: torch.Tensor, visible: torch.Tensor):
        """Run `tokens` [rows, new] after what went before; logits [rows, new, vocabulary]."""
        position_ids = plan.extend(depth, visible)
        output = self._forward([list(chain(*tokens))], position_ids, plan, None)
        return output.logits[0].unflatten(0, (len(tokens), -1))

    def branch(self, plan: ContinuationPlan, owners: Sequence[int], branches: Sequence[list[int]]) -> torch.Tensor:
        """Run `branches`, each after the row of the first pass that owns it; the last layer's states [tokens, hidden].

        Not the logits: of a thousand tokens, they take more memory than all else.
        """
        self.read.places = None
        branch_plan = plan.branch(owners, [len(tokens) for tokens in branches])
        output = self.model.get_decoder()(
            input_ids=torch.tensor([list(chain(*branches))], device=self.model.device),
            position_ids=branch_plan.position_ids,
            use_cache=False,
            ragged_plan=branch_plan,
        )
        return output.last_hidden_state[0]

    def _forward(self, input_ids, position_ids, plan, places: torch.Tensor | None) -> CausalLMOutputWithPast:
        """`places`: those whose logits are wanted, or None for all."""
        self.read.places = places
        return self.model(
            input_ids=torch.tensor(input_ids, device=self.model.device),
            position_ids=position_ids,
            logits_to_keep=0 if places is None else places,
            use_cache=False,
            ragged_plan=plan,
        )


def _in_batches(model, prompts, batch_tokens, run: Callable[[_Passes, list[int]], None]) -> None:
    """Call `run` on batches of rows, halving the batch when the GPU's memory runs out."""
    with _prepared(model) as read:
        passes = _Passes(model, read, prompts)
        budget = batch_tokens or fitting_batch_tokens(model)
        queue = token_batches([len(prompt) - passes.length for prompt in prompts], budget)
        while queue:
            # Sorted rows share what they begin with.
            rows = sorted(queue.pop(0), key=lambda row: prompts[row])
            try:
                run(passes, rows)
            except torch.OutOfMemoryError:
                if len(rows) == 1:
                    raise
                torch.cuda.empty_cache()
                half = len(rows) // 2
                log.info("out of memory with %d rows in a batch; going on with %d", len(rows), half)
                queue = [part for batch in [rows, *queue] for part in (batch[:half], batch[half:]) if part]


@contextmanager
def _prepared(model: PreTrainedModel) -> Iterator[last_layer.ReadPlaces]:
    """`model` in evaluation, with ragged attention, fused LoRA layers and a last layer that looks at the places given;
    afterwards as it was."""
    was_training, attention = model.training, model.config._attn_implementation
    model.eval()
    model.set_attn_implementation(ATTENTION)
    keep_freed_memory()
    try:
        with lora.installed(model), last_layer.installed(model) as read:
            yield read
    finally:
        model.set_attn_implementation(attention)
        model.train(was_training)
