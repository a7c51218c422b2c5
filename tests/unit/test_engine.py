"""The engine gives the gradients and the answers of the ordinary code."""

import random
from collections import Counter

import pytest
import torch
from peft import IA3Config, LoHaConfig, LoraConfig, PromptTuningConfig, get_peft_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

import tiny
from reprolora.engine import answers, last_layer, lora, plain, ragged
from reprolora.engine.batches import LengthGroupedBatches, collate_padded, collate_ragged, token_batches
from reprolora.engine.ragged import ATTENTION, SHORT_ROW, RaggedPlan, longest_common_prefix, why_not
from reprolora.prompts import EncodedRow

FAMILIES = sorted(tiny.FAMILIES)


def rows_with(prefix: int, count: int, seed: int = 0, completion: int = 2) -> list[EncodedRow]:
    """Rows that share exactly `prefix` tokens, then differ, of different lengths."""
    draw = random.Random(seed)
    shared = [draw.randrange(3, 300) for _ in range(prefix)]
    rows = []
    for row in range(count):
        own = [300 + row, *(draw.randrange(3, 300) for _ in range(draw.randrange(0, 9)))]
        target = [draw.randrange(3, 300) for _ in range(completion - 1)] + [2]
        rows.append(EncodedRow(shared + own + target, prefix + len(own)))
    return rows


CASES = {
    "no prefix": rows_with(0, 5),
    "one token": rows_with(1, 4),
    "long prefix": rows_with(12, 6),
    "all but one token": [EncodedRow([9, 8, 7, 6, 40 + row, 2], 5) for row in range(3)],
    "equal rows": [EncodedRow([9, 8, 7, 6, 5, 2], 4)] * 3,
    "equal prompts, other answers": [EncodedRow([9, 8, 7, 6, 50 + row, 2], 4) for row in range(3)],
    "one row": rows_with(5, 1),
    "long answers": rows_with(4, 4, completion=9),
    "tree": [
        EncodedRow(prompt + answer, len(prompt))
        for prompt, answer in (
            ([9, 8, 40, 41, 42, 43], [50, 2]),
            ([9, 8, 40, 41, 60, 61, 62, 63, 64], [51, 2]),
            ([9, 8, 40, 41, 60, 61], [62, 63, 2]),  # its answer begins as the row before goes on
            ([9, 8, 40], [41, 2]),  # its answer begins as others' prompts go on
            ([9, 8, 40, 41, 60, 61, 62, 70], [52, 2]),
            ([9, 8, 40, 41, 60, 61, 62, 70], [53, 2]),
            ([9, 8, 80, 81], [54, 2]),
        )
    ],
}


def adapted(base, dropout=0.0):
    torch.manual_seed(1)
    config = LoraConfig(r=4, lora_alpha=8, lora_dropout=dropout, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(base, config)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    return model.train()


def plain_loss(model, rows):
    return model(**collate_padded(rows, pad_token_id=2), use_cache=False).loss


def ragged_loss(model, rows):
    batch = collate_ragged(rows)
    last_layer.install(model).places = batch["logits_to_keep"]
    plan = RaggedPlan(batch["prefix"], batch["lengths"], batch["shared"])
    logits = model(
        input_ids=batch["input_ids"],
        position_ids=plan.position_ids,
        logits_to_keep=batch["logits_to_keep"],
        use_cache=False,
        ragged_plan=plan,
    ).logits[0]
    return torch.nn.functional.cross_entropy(logits, batch["shift_labels"])


def gradient(model, loss):
    model.zero_grad()
    loss.backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.requires_grad])


def relative(a, b):
    return ((a - b).norm() / b.norm()).item()


def assert_same_gradient(model, rows):
    loss = plain_loss(model, rows)
    expected = gradient(model, loss)
    model.get_base_model().set_attn_implementation(ATTENTION)
    assert lora.install(model) > 0
    ours = ragged_loss(model, rows)
    assert ours.item() == pytest.approx(loss.item(), rel=1e-5)
    assert relative(gradient(model, ours), expected) < 2e-5


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("case", CASES)
def test_gradient_equals_plain(family, case):
    assert_same_gradient(adapted(tiny.model(family)), CASES[case])


@pytest.mark.parametrize("family", ["llama", "mistral"])
@pytest.mark.parametrize("prefix", [0, 30])
def test_gradient_equals_plain_where_attention_takes_its_path_for_long_rows(family, prefix):
    """Rows of instructions: an answer of hundreds of tokens beside one of a few."""
    rows = [row for length in (9, 140, 370) for row in rows_with(prefix, 1, seed=length, completion=length)]
    shared = rows[0].ids[:prefix]
    rows = [EncodedRow(shared + row.ids[prefix:], row.prompt_length) for row in rows]
    assert max(len(row.ids) for row in rows) > 2 * SHORT_ROW
    assert_same_gradient(adapted(tiny.model(family)), rows)


@pytest.mark.parametrize("case", ["no prefix", "long prefix"])
@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("quant_type", ["nf4", "fp4"])
def test_gradient_equals_plain_on_a_4_bit_base(tmp_path, case, nested, quant_type):
    tiny.model("llama", hidden_size=64, intermediate_size=128).save_pretrained(tmp_path)
    config = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type=quant_type,
        bnb_4bit_use_double_quant=nested,
        bnb_4bit_compute_dtype=torch.float32,
    )
    base = AutoModelForCausalLM.from_pretrained(
        tmp_path, quantization_config=config, dtype=torch.float32, attn_implementation="sdpa", device_map={"": "cpu"}
    )
    assert_same_gradient(adapted(base), CASES[case])


OTHER_ADAPTERS = {
    "DoRA": LoraConfig(r=4, use_dora=True, target_modules="all-linear", task_type="CAUSAL_LM"),
    "rsLoRA": LoraConfig(r=4, use_rslora=True, target_modules="all-linear", task_type="CAUSAL_LM"),
    "PiSSA": LoraConfig(r=4, init_lora_weights="pissa", target_modules="all-linear", task_type="CAUSAL_LM"),
    "biases": LoraConfig(r=4, bias="all", target_modules="all-linear", task_type="CAUSAL_LM"),
    "IA3": IA3Config(task_type="CAUSAL_LM"),
}


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("adapter", [*OTHER_ADAPTERS, None])
def test_gradient_equals_plain_with_other_adapters_and_without_one(adapter, fused):
    model = tiny.model(attention_bias=True, mlp_bias=True).train()
    if adapter:
        torch.manual_seed(1)
        model = get_peft_model(model, OTHER_ADAPTERS[adapter])
        for name, parameter in model.named_parameters():
            if "lora_B" in name or "ia3" in name:
                torch.nn.init.normal_(parameter, std=0.1)
    rows = CASES["long prefix"]
    assert why_not(model) is None
    loss = plain_loss(model, rows)
    expected = gradient(model, loss)
    model.set_attn_implementation(ATTENTION)
    if fused:
        assert lora.install(model) == (14 if adapter in ("rsLoRA", "PiSSA", "biases") else 0)
    ours = ragged_loss(model, rows)
    assert ours.item() == pytest.approx(loss.item(), rel=1e-5)
    assert relative(gradient(model, ours), expected) < 2e-5


@pytest.mark.parametrize(
    "config, reason",
    [
        (PromptTuningConfig(num_virtual_tokens=3, task_type="CAUSAL_LM"), "puts tokens of its own"),
        (LoHaConfig(r=4, target_modules=["q_proj"]), "adapter type LOHA is not among those tested: IA3, LORA"),
        (LoraConfig(r=4, task_type="CAUSAL_LM", alora_invocation_tokens=[5]), "on some tokens of a row and not on"),
        (LoraConfig(r=4, task_type="CAUSAL_LM", layer_replication=[(0, 2), (0, 2)]), "keep an attention of their own"),
    ],
)
def test_adapter_that_looks_beyond_one_token_has_a_reason_not_to_be_ragged(config, reason):
    assert reason in why_not(get_peft_model(tiny.model(), config))


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
@pytest.mark.parametrize("family", ["llama", "gemma3_text"])
def test_rotation_that_follows_the_longest_row_is_a_reason_not_to_be_ragged(family, kind):
    rope = {"rope_type": kind, "rope_theta": 1e4, "factor": 2.0}
    rope |= {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4, "original_max_position_embeddings": 256}
    if family == "gemma3_text":
        rope = {"full_attention": rope, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
    assert f"position embeddings of type {kind}" in why_not(tiny.model(family, rope_parameters=rope))


@pytest.mark.parametrize("with_adapter", [False, True])
def test_no_engine_heeds_penalties_that_the_model_s_publisher_set(with_adapter):
    model = adapted(tiny.model()).eval() if with_adapter else tiny.model()
    prompts = [row.ids[: row.prompt_length] for row in CASES["long prefix"]]
    expected = plain.generate(model, prompts, 6, {2})
    settings = model.generation_config
    settings.repetition_penalty, settings.suppress_tokens, settings.min_new_tokens = 5.0, list(range(0, 384, 2)), 6
    before = settings.to_dict()
    assert plain.generate(model, prompts, 6, {2}) == expected == answers.generate(model, prompts, 6, {2})
    assert model.generation_config.to_dict() == before


def test_plain_engine_asks_a_model_that_puts_tokens_before_the_prompt():
    torch.manual_seed(0)
    model = get_peft_model(tiny.model(), PromptTuningConfig(num_virtual_tokens=3, task_type="CAUSAL_LM")).eval()
    prompts = prompts_for(3)
    virtual = model.get_prompt(batch_size=1)
    scores = plain.label_log_probabilities(model, prompts, LABELS)
    answers_ = plain.generate(model, prompts, 4, {2})
    for row, prompt in enumerate(prompts):
        ids = list(prompt)
        with torch.no_grad():
            embed = model.get_input_embeddings()

            def logits(ids, embed=embed):
                embedded = torch.cat([virtual, embed(torch.tensor([ids]))], 1)
                return model.get_base_model()(inputs_embeds=embedded).logits[0].log_softmax(-1)

            for column, label in enumerate(LABELS):
                steps = logits(prompt + label)[3 + len(prompt) - 1 :]
                expected = sum(steps[k, token].item() for k, token in enumerate(label))
                assert scores[row, column].item() == pytest.approx(expected, abs=1e-4)
            for token in answers_[row]:
                assert token == logits(ids)[-1].argmax().item()
                ids.append(token)
        assert len(answers_[row]) == 4 or logits(ids)[-1].argmax().item() == 2


def test_gradient_checkpointing_changes_no_gradient_and_trains_every_layer():
    model = adapted(tiny.model())
    rows = CASES["long prefix"]
    expected = gradient(model, plain_loss(model, rows))
    model.get_base_model().set_attn_implementation(ATTENTION)
    lora.install(model)
    model.gradient_checkpointing_enable()
    model.enable_input_require_grads()
    found = gradient(model, ragged_loss(model, rows))
    assert relative(found, expected) < 2e-5
    assert all(p.grad.any() for p in model.parameters() if p.requires_grad)


@pytest.mark.parametrize("family", FAMILIES)
def test_last_layer_is_computed_where_it_is_read_and_gives_the_same_there(family):
    model = adapted(tiny.model(family)).eval()
    model.get_base_model().set_attn_implementation(ATTENTION)
    batch = collate_ragged(CASES["long prefix"])
    read = batch["logits_to_keep"]
    plan = RaggedPlan(batch["prefix"], batch["lengths"], batch["shared"])
    seen = []
    last = model.get_decoder().layers[-1].mlp.down_proj
    last.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].shape[1]))

    def logits(places):
        with torch.no_grad(), last_layer.installed(model) as reading:
            reading.places = places
            return model(
                input_ids=batch["input_ids"],
                position_ids=plan.position_ids,
                logits_to_keep=read,
                use_cache=False,
                ragged_plan=plan,
            ).logits

    torch.testing.assert_close(logits(read), logits(None), atol=1e-5, rtol=1e-5)
    assert seen == [len(read), batch["input_ids"].shape[1]] and len(read) < batch["input_ids"].shape[1]
    assert "forward" not in model.get_decoder().layers[-1].mlp.__dict__


def test_places_of_a_while_end_with_it():
    model = tiny.model()
    outer = last_layer.install(model)
    forward = model.get_decoder().layers[-1].mlp.forward
    with last_layer.installed(model) as inner:
        inner.places = torch.tensor([0])
    assert outer.places is None and model.get_decoder().layers[-1].mlp.forward is forward
    last_layer.remove(model)
    assert "forward" not in model.get_decoder().layers[-1].mlp.__dict__


@pytest.mark.parametrize(
    ("missing", "dtype", "gradients", "merged"),
    [
        (0, torch.float32, False, True),
        (1, torch.float32, False, False),  # too few tokens to pay for it
        (0, torch.float32, True, False),
        (0, torch.bfloat16, False, False),  # the adapter's part would be rounded away beside the weight
    ],
)
def test_many_tokens_of_which_no_gradient_is_wanted_share_one_merged_weight(
    missing, dtype, gradients, merged, monkeypatch
):
    model = adapted(tiny.model(num_hidden_layers=1)).eval().to(dtype)
    module = model.get_base_model().model.layers[0].mlp.down_proj
    into, out = module.in_features, module.out_features
    x = torch.randn(1, into * out // (into + out) + 1 - missing, into).to(dtype)
    expected = module(x).detach()
    merges, addmm = [], torch.addmm
    monkeypatch.setattr(torch, "addmm", lambda *args, **named: merges.append(args) or addmm(*args, **named))
    with torch.set_grad_enabled(gradients), lora.installed(model):
        found = module(x)
    assert bool(merges) == merged
    assert relative(found.float(), expected.float()) < (1e-6 if dtype == torch.float32 else 0.02)


@pytest.mark.parametrize("probability", [0.05, 0.5])
def test_dropout_takes_the_asked_share_of_every_feature_and_other_elements_each_time(probability):
    def draw():
        taken = torch.zeros(1000 * 999)
        taken[lora._dropped(len(taken), probability, taken.device)] = 1
        return taken.view(1000, 999)

    torch.manual_seed(0)
    first, second = draw(), draw()
    spread = (probability * (1 - probability)) ** 0.5
    assert abs(first.mean().item() - probability) < 5 * spread / 999_000**0.5
    assert (first.mean(0) - probability).abs().max() < 5 * spread / 1000**0.5
    assert (first.mean(1) - probability).abs().max() < 5 * spread / 999**0.5
    for other in (second, first.roll(1), first.roll(2), first.roll(999)):  # by themselves, of each other
        assert abs((first * other).mean().item() - probability**2) < 5 * probability * (1 - probability**2) ** 0.5 / 999
    torch.manual_seed(0)
    assert torch.equal(draw(), first)


def test_dropout_reaches_the_last_element_however_few_numbers_were_drawn(monkeypatch):
    rand = torch.rand
    monkeypatch.setattr(torch, "rand", lambda count: rand(max(1, count // 3)))
    places = torch.cat([lora._dropped(1000, 0.2, torch.device("cpu")) // 100 for _ in range(200)])
    assert torch.equal(places.unique(), torch.arange(10))
    assert torch.bincount(places).float().sub(4000).abs().max() < 5 * (20_000 * 0.2 * 0.8) ** 0.5


def test_dropout_leaves_the_mean_of_a_layer_s_output():
    module = adapted(tiny.model(num_hidden_layers=1), dropout=0.3).get_base_model().model.layers[0].mlp.down_proj
    x = torch.randn(1, module.in_features)
    expected = module.eval()(x)
    lora.install(module.train())
    torch.manual_seed(0)
    found = module(x.expand(20_000, -1))
    error = (found.mean(0) - expected[0]) / (found.std(0) / 20_000**0.5)
    assert error.abs().max() < 5


def test_fused_layer_has_the_gradient_of_its_own_formula_with_dropout():
    model = adapted(tiny.model(num_hidden_layers=1), dropout=0.3)
    module = model.get_base_model().model.layers[0].mlp.down_proj
    x = torch.randn(7, module.in_features, requires_grad=True)
    lora.install(model)
    torch.manual_seed(5)
    module(x).square().sum().backward()
    found = [x.grad.clone(), *(p.grad.clone() for p in module.parameters() if p.requires_grad)]
    x.grad = None
    module.zero_grad()
    torch.manual_seed(5)
    kept = torch.ones(x.numel())
    kept[lora._dropped(x.numel(), 0.3, x.device)] = 0
    kept = kept.view(x.shape)
    a, b = module.lora_A["default"].weight, module.lora_B["default"].weight
    (x @ module.base_layer.weight.T + 2 / 0.7 * (x * kept) @ a.T @ b.T).square().sum().backward()
    expected = [x.grad, *(p.grad for p in module.parameters() if p.requires_grad)]
    for ours, formula in zip(found, expected, strict=True):
        assert relative(ours, formula) < 1e-5


def test_dora_keeps_peft_s_own_forward():
    config = LoraConfig(r=4, use_dora=True, target_modules="all-linear", task_type="CAUSAL_LM")
    assert lora.install(get_peft_model(tiny.model(), config)) == 0


def test_remove_gives_peft_s_forward_back():
    model = adapted(tiny.model())
    lora.install(model)
    lora.remove(model)
    assert not any("forward" in module.__dict__ for module in model.modules() if hasattr(module, "lora_A"))


def test_for_a_while_and_only_where_they_were_not_before():
    model = adapted(tiny.model())
    layers = [module for module in model.modules() if hasattr(module, "lora_A")]
    with lora.installed(model):
        assert all("forward" in layer.__dict__ for layer in layers)
        with lora.installed(model):
            pass
        assert all("forward" in layer.__dict__ for layer in layers)
    assert not any("forward" in layer.__dict__ for layer in layers)


@pytest.mark.parametrize("autocast", [False, True])
def test_an_adapter_of_a_wider_type_is_computed_in_it_as_by_peft(autocast):
    model = adapted(tiny.model(num_hidden_layers=1)).bfloat16().eval()
    module = model.get_base_model().model.layers[0].mlp.down_proj
    module.lora_A.float(), module.lora_B.float()
    x = torch.randn(7, module.in_features).bfloat16()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        expected = module(x)
        with lora.installed(model):
            found = module(x)
    assert autocast or torch.equal(found, expected)
    assert relative(found.float(), expected.float()) < 0.02


def test_what_rows_of_a_batch_begin_with_alike_is_laid_out_once():
    rows = CASES["tree"]
    batch = collate_ragged(rows)
    # One place for each beginning of a row, or as many as there are rows that predict a completion token there.
    beginnings = {tuple(row.ids[:length]) for row in rows for length in range(1, len(row.ids))}
    predicting = Counter(tuple(row.ids[:length]) for row in rows for length in range(row.prompt_length, len(row.ids)))
    assert max(predicting.values()) == 2
    assert batch["prefix"] == 2 and batch["input_ids"].shape[1] == sum(max(1, predicting[ids]) for ids in beginnings)
    assert len(batch["logits_to_keep"].unique()) == len(batch["shift_labels"]) == predicting.total()


def prompts_for(count: int, prefix: int = 6, seed: int = 3) -> list[list[int]]:
    """Prompts that begin alike, and of which two of three go on like the one before for some tokens."""
    prompts = [row.ids[: row.prompt_length] for row in rows_with(prefix, count, seed)]
    for row in range(count):
        if row % 3:
            prompts[row] = prompts[row - 1][: prefix + 2 * (row % 3)] + prompts[row][prefix:]
    return prompts


def naive_generation(model, prompt, new_tokens, terminators):
    output = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=new_tokens,
        do_sample=False,
        eos_token_id=list(terminators),
        pad_token_id=0,
    )[0, len(prompt) :].tolist()
    return output[: next((k for k, token in enumerate(output) if token in terminators), len(output))]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("prefix", [0, 6])
def test_generation_equals_the_one_row_loop(family, prefix):
    model, prompts = tiny.model(family), prompts_for(9, prefix)
    # Terminators that really come up, at different steps, or the test would show nothing of stopping.
    free = [naive_generation(model, prompt, 5, {383}) for prompt in prompts]
    terminators = {free[0][2], free[1][0], free[2][4]}
    expected = [naive_generation(model, prompt, 5, terminators) for prompt in prompts]
    assert len({len(answer) for answer in expected}) > 1
    assert answers.generate(model, prompts, 5, terminators, batch_tokens=40) == expected


def test_generation_does_not_depend_on_batches_or_order():
    model, prompts = tiny.model(), prompts_for(11)
    expected = answers.generate(model, prompts, 4, {2}, batch_tokens=1000)
    assert answers.generate(model, prompts, 4, {2}, batch_tokens=1) == expected
    order = random.Random(0).sample(range(11), 11)
    shuffled = answers.generate(model, [prompts[row] for row in order], 4, {2}, batch_tokens=30)
    assert shuffled == [expected[row] for row in order]


def test_what_prompts_begin_with_alike_runs_once_in_any_order():
    model, prompts, run = tiny.model().eval(), prompts_for(11), []
    random.Random(5).shuffle(prompts)
    model.get_input_embeddings().register_forward_hook(lambda module, inputs, output: run.append(inputs[0].numel()))
    answers.generate(model, prompts, 1, {2}, batch_tokens=10_000)
    prefix = 6
    beginnings = {tuple(ids[:length]) for ids in prompts for length in range(prefix + 1, len(ids) + 1)}
    assert run == [prefix, len(beginnings)]


LABELS = [[10, 11, 12], [10, 11, 13], [10, 20], [30], [40, 41]]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("prefix", [0, 6])
def test_label_likelihood_equals_the_loop_over_labels(family, prefix):
    model, prompts = tiny.model(family), prompts_for(6, prefix)
    found = answers.label_log_probabilities(model, prompts, LABELS, batch_tokens=40)
    for row, prompt in enumerate(prompts):
        for column, label in enumerate(LABELS):
            with torch.no_grad():
                logits = model(torch.tensor([prompt + label])).logits[0].log_softmax(-1)
            expected = sum(logits[len(prompt) - 1 + k, token].item() for k, token in enumerate(label))
            assert found[row, column].item() == pytest.approx(expected, abs=2e-4)


def test_label_that_begins_another_is_refused():
    with pytest.raises(ValueError, match="begin another"):
        answers.label_log_probabilities(tiny.model(), prompts_for(2), [[5], [5, 6]])


def completions_for(count: int, seed: int = 5) -> list[list[list[int]]]:
    """For each row none to four completions, of one token to a dozen, some of which begin alike."""
    draw = random.Random(seed)
    made = []
    for row in range(count):
        own = [[draw.randrange(3, 300) for _ in range(draw.choice([1, 2, 5, 12]))] for _ in range(row % 4)]
        made.append([*own, own[0] + [7]] if own else [])
    return made


def naive_log_probabilities(model, prompt, completion):
    with torch.no_grad():
        logits = model(torch.tensor([prompt + completion])).logits[0].log_softmax(-1)
    return [logits[len(prompt) - 1 + k, token].item() for k, token in enumerate(completion)]


@pytest.mark.parametrize("engine", [answers, plain])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("prefix", [0, 6])
def test_likelihood_of_own_completions_equals_the_loop_over_them(family, prefix, engine, monkeypatch):
    monkeypatch.setattr(answers, "LARGEST_LOGITS", 3 * 384)  # so that a completion's logits come in pieces
    model, prompts, completions = tiny.model(family), prompts_for(7, prefix), completions_for(7)
    assert {len(own) for own in completions} == {0, 2, 3, 4}
    options = {"batch_tokens": 60} if engine is answers else {}
    found = engine.completion_log_probabilities(model, prompts, completions, **options)
    for prompt, own, scores in zip(prompts, completions, found, strict=True):
        for completion, score in zip(own, scores, strict=True):
            expected = naive_log_probabilities(model, prompt, completion)
            assert score.dtype == torch.float64 and score.tolist() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_likelihood_of_completions_too_long_for_plain_products(family, monkeypatch):
    monkeypatch.setattr(ragged, "SHORT_ROW", 1)
    model, prompts, completions = tiny.model(family), prompts_for(4), completions_for(4)
    found = answers.completion_log_probabilities(model, prompts, completions)
    for prompt, own, scores in zip(prompts, completions, found, strict=True):
        for completion, score in zip(own, scores, strict=True):
            assert score.tolist() == pytest.approx(naive_log_probabilities(model, prompt, completion), abs=1e-4)


def test_likelihood_of_completions_does_not_depend_on_batches_or_order():
    model, prompts, completions = adapted(tiny.model()).eval(), prompts_for(9), completions_for(9)
    expected = plain.completion_log_probabilities(model, prompts, completions)
    order = random.Random(0).sample(range(9), 9)
    for batch_tokens, rows in ((1000, range(9)), (1, range(9)), (40, order)):
        chosen = [prompts[row] for row in rows], [completions[row][::-1] for row in rows]
        found = answers.completion_log_probabilities(model, *chosen, batch_tokens=batch_tokens)
        for row, scores in zip(rows, found, strict=True):
            for score, wanted in zip(scores[::-1], expected[row], strict=True):
                assert torch.allclose(score, wanted, atol=1e-4)


def test_a_row_that_has_ended_is_not_run_any_more(monkeypatch):
    model, prompts = tiny.model(), prompts_for(9)
    free = [naive_generation(model, prompt, 5, {383}) for prompt in prompts]
    terminators = {free[0][2], free[1][0], free[2][4]}
    following, rows = answers._Passes.next, []

    def counted(self, plan, tokens, depth, visible):
        rows.append(len(tokens))
        return following(self, plan, tokens, depth, visible)

    monkeypatch.setattr(answers._Passes, "next", counted)
    found = answers.generate(model, prompts, 5, terminators)
    # After step k, the rows go on whose answers have more than k tokens.
    lengths = [len(answer) for answer in found]
    assert rows == [count for count in (sum(length > k for length in lengths) for k in range(4)) if count]
    assert rows[0] > rows[-1]


def test_out_of_memory_halves_the_batch(monkeypatch):
    model, prompts = tiny.model(), prompts_for(8)
    expected = answers.generate(model, prompts, 3, {2})
    first, sizes = answers._Passes.first, []

    def limited(self, batch):
        sizes.append(len(batch))
        if len(batch) > 3:
            raise torch.OutOfMemoryError("no memory")
        return first(self, batch)

    monkeypatch.setattr(answers._Passes, "first", limited)
    assert answers.generate(model, prompts, 3, {2}) == expected
    assert sizes[0] == 8 and max(sizes[2:]) <= 4 and sizes[-1] <= 3


def test_out_of_memory_in_the_middle_of_an_answer_starts_it_anew(monkeypatch):
    model, prompts = tiny.model(), prompts_for(6)
    expected = answers.generate(model, prompts, 4, {383})
    following, calls = answers._Passes.next, []

    def limited(self, plan, tokens, depth, visible):
        calls.append(len(tokens))
        if len(calls) == 3:
            raise torch.OutOfMemoryError("no memory")
        return following(self, plan, tokens, depth, visible)

    monkeypatch.setattr(answers._Passes, "next", limited)
    assert answers.generate(model, prompts, 4, {383}) == expected
    assert calls[:4] == [6, 6, 6, 3]


def test_evaluation_leaves_the_model_as_it_was():
    model = tiny.model().train()
    answers.generate(model, prompts_for(3), 2, {2})
    assert model.training and model.config._attn_implementation == "sdpa"


def test_longest_common_prefix():
    assert longest_common_prefix([[1, 2, 3], [1, 2, 4], [1, 2]]) == 2
    assert longest_common_prefix([[1], [2]]) == 0
    assert longest_common_prefix([[1, 2]]) == 2


def test_batches_are_a_permutation_that_seed_and_epoch_decide():
    lengths = [random.Random(1).randrange(5, 90) for _ in range(211)] * 3
    sampler = LengthGroupedBatches(lengths, 16, seed=7)
    first = list(sampler)
    assert sorted(first) == list(range(len(lengths))) and first == list(sampler)
    sampler.set_epoch(1)
    assert list(sampler) != first
    assert list(LengthGroupedBatches(lengths, 16, seed=8)) != first
    spread = [max(b) - min(b) for b in ([lengths[row] for row in first[k : k + 16]] for k in range(0, 600, 16))]
    assert sum(spread) / len(spread) < 10  # of 85 between the shortest and the longest row


def test_few_rows_make_other_batches_in_every_epoch():
    sampler = LengthGroupedBatches(list(range(64)), 4, seed=1)
    epochs = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        rows = list(sampler)
        epochs.append({frozenset(rows[start : start + 4]) for start in range(0, 64, 4)})
    # Sorted as a whole, these rows of 64 lengths would be the same sixteen batches each time.
    assert len(epochs[0] & epochs[1]) < 4


def test_token_batches_hold_every_row_within_the_budget():
    lengths = [3, 50, 7, 7, 20, 1]
    batches = token_batches(lengths, 40)
    assert sorted(row for batch in batches for row in batch) == list(range(6))
    assert all(len(b) == 1 or len(b) * max(lengths[row] for row in b) <= 40 for b in batches)
