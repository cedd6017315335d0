from dataclasses import dataclass, field
from typing import List, Optional

import transformers
from peft import LoraConfig, get_peft_model
from transformers import Trainer


@dataclass
class ModelArguments:
    model_name_or_path: Optional[str] = field(default="a/b")


@dataclass
class DataArguments:
    max_text_length: int = field(default=1024)
    verbose: bool = False


@dataclass
class TrainingArguments(transformers.TrainingArguments):
    optim: str = field(default="adamw_torch")
    use_lora: bool = False


@dataclass
class LoraArguments:
    lora_rank: int = 64
    targets: List[str] = field(default_factory=lambda: ["q_proj", "v_proj"])


def train():
    parser = transformers.HfArgumentParser((ModelArguments, DataArguments, TrainingArguments, LoraArguments))
    model_args, data_args, training_args, lora_args = parser.parse_args_into_dataclasses()
    model = transformers.AutoModelForCausalLM.from_pretrained(model_args.model_name_or_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_args.model_name_or_path)
    if training_args.use_lora:
        config = LoraConfig(r=lora_args.lora_rank, lora_alpha=16, target_modules=lora_args.targets, lora_dropout=0.05, task_type="CAUSAL_LM")
        model = get_peft_model(model, config)
    rows = [tokenizer(text, max_length=data_args.max_text_length, truncation=True) for text in texts()]
    trainer = Trainer(model=model, args=training_args, train_dataset=rows)
    trainer.train()


train()
