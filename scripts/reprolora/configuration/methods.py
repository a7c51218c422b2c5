"""config/methods.yaml: adapters to train, full fine-tuning, and baselines."""

from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from reprolora.configuration.peft_keys import check_peft, peft_error, peft_schema
from reprolora.configuration.sections import Section, Text


class Quantization(Section):
    """How the base model's weights are stored under the adapter: keys of Transformers' BitsAndBytesConfig."""

    load_in_4bit: bool = Field(default=False, description="Store the weights in 4 bits (QLoRA).")
    load_in_8bit: bool = Field(
        default=False, description="Store the weights in 8 bits (LLM.int8); one of the two has to be true."
    )
    bnb_4bit_quant_type: Literal["nf4", "fp4"] | None = Field(
        default="nf4", description="The 4-bit data type; nothing in 8 bits."
    )
    bnb_4bit_use_double_quant: bool | None = Field(
        default=True, description="Whether the constants of 4-bit weights are quantized too; nothing in 8 bits."
    )

    @model_validator(mode="before")
    @classmethod
    def _no_4_bit_defaults_in_8_bits(cls, data: Any) -> Any:
        if isinstance(data, dict) and str(data.get("load_in_8bit")).lower() == "true":  # `--config` gives texts
            return {"bnb_4bit_quant_type": None, "bnb_4bit_use_double_quant": None} | data
        return data

    @model_validator(mode="after")
    def _one_width(self) -> Self:
        if self.load_in_4bit == self.load_in_8bit:
            raise ValueError("set one of load_in_4bit and load_in_8bit; for neither, leave the whole section out")
        for key in ("bnb_4bit_quant_type", "bnb_4bit_use_double_quant"):
            if (getattr(self, key) is None) != self.load_in_8bit:
                raise ValueError(f"{key} belongs to load_in_4bit; " + ("remove it" if self.load_in_8bit else "set it"))
        return self


class Method(Section):
    """A way of getting answers: an adapter to train (`peft`), all weights (`full`), or a baseline that trains none."""

    description: Text = Field(description="What the method is, in a sentence; the report shows it.")
    peft: dict[str, Any] | None = Field(
        default=None,
        description="An adapter: `peft_type` and any key of that type's configuration class in PEFT "
        "(`config/schemas/peft.json` lists them).",
    )
    full: bool = Field(default=False, description="Full fine-tuning: every weight of the model is trained.")
    quantization: Quantization | None = Field(
        default=None, description="Quantize the base model under the adapter; null trains on the plain weights."
    )
    learning_rate: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Peak learning rate of this method where the experiment's does not suit it; null takes that one.",
    )
    loraplus_lr_ratio: float | None = Field(
        default=None, ge=1, description="LoRA+: so many times the learning rate for the B matrices; null is LoRA."
    )
    baseline: Literal["zero-shot", "few-shot", "majority", "tfidf-logistic-regression"] | None = Field(
        default=None,
        description="A baseline: the model as it is, without or with examples in the prompt, the commonest class, or "
        "TF-IDF with logistic regression.",
    )
    shots: int | None = Field(
        default=None, ge=1, description="How many training rows a few-shot prompt shows, of all labels alike."
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if [self.peft is not None, self.full, self.baseline is not None].count(True) != 1:
            raise ValueError("give exactly one of peft, full: true and baseline")
        if self.quantization and not self.peft:
            reason = "quantized weights cannot be trained" if self.full else "a baseline has none"
            raise ValueError(f"quantization goes with peft; {reason}")
        if self.baseline and self.learning_rate:
            raise ValueError("learning_rate goes with peft and full; a baseline trains nothing by steps")
        if self.loraplus_lr_ratio and (self.peft or {}).get("peft_type") != "LORA":
            raise ValueError("loraplus_lr_ratio goes with a peft of type LORA, whose B matrices it is about")
        if (self.baseline == "few-shot") != (self.shots is not None):
            raise ValueError("shots and baseline: few-shot go together")
        initialization = (self.peft or {}).get("init_lora_weights")
        if initialization == "pissa" and self.quantization:
            raise peft_error(
                ("peft", "init_lora_weights"), "pissa decomposes plain weights; remove quantization or use olora"
            )
        return self

    @field_validator("peft")
    @classmethod
    def _peft(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        return None if value is None else check_peft(value)

    @property
    def trains(self) -> bool:
        """Whether the method has weights to train, to save and to reload."""
        return self.peft is not None or self.full

    @property
    def merges(self) -> bool:
        """Whether what is trained can become a part of the model's weights."""
        return self.full or (self.peft is not None and peft_schema()["types"][self.peft["peft_type"]]["merges"])

    @property
    def prompted(self) -> bool:
        """Whether it asks the base model as it is."""
        return self.baseline in ("zero-shot", "few-shot")

    @property
    def needs_model(self) -> bool:
        return self.trains or self.prompted

    @property
    def seeded(self) -> bool:
        """Whether the answers depend on the experiment's seeds, so that each makes an arm."""
        return self.trains or self.baseline == "few-shot"

    @property
    def learns(self) -> bool:
        """Whether more training rows teach it more."""
        return self.trains or self.baseline == "tfidf-logistic-regression"
