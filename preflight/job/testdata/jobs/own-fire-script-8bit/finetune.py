from typing import List

import fire
import torch
import transformers
from peft import LoraConfig, get_peft_model, prepare_model_for_int8_training
from transformers import LlamaForCausalLM, LlamaTokenizer


def train(
    base_model: str = "",
    micro_batch_size: int = 4,
    cutoff_len: int = 256,
    lora_r: int = 8,
    lora_alpha: int = 16,
    lora_target_modules: List[str] = ["q_proj", "v_proj"],
):
    model = LlamaForCausalLM.from_pretrained(base_model, load_in_8bit=True, torch_dtype=torch.float16)
    tokenizer = LlamaTokenizer.from_pretrained(base_model)

    def tokenize(prompt):
        return tokenizer(prompt, truncation=True, max_length=cutoff_len, padding=False)

    model = prepare_model_for_int8_training(model)
    config = LoraConfig(r=lora_r, lora_alpha=lora_alpha, target_modules=lora_target_modules, lora_dropout=0.05, task_type="CAUSAL_LM")
    model = get_peft_model(model, config)
    trainer = transformers.Trainer(
        model=model,
        train_dataset=data(tokenize),
        args=transformers.TrainingArguments(
            per_device_train_batch_size=micro_batch_size, gradient_accumulation_steps=8, fp16=True, optim="adamw_torch", output_dir="out",
        ),
    )
    trainer.train()


if __name__ == "__main__":
    fire.Fire(train)
