from transformers import TrainingArguments
from trl import SFTTrainer
from unsloth import FastLanguageModel

length = 2048
model, tokenizer = FastLanguageModel.from_pretrained(model_name="unsloth/mistral-7b", max_seq_length=length, dtype=None, load_in_4bit=True)
model = FastLanguageModel.get_peft_model(
    model, r=16, target_modules=["q_proj", "v_proj"], lora_alpha=16, lora_dropout=0, bias="none", use_gradient_checkpointing=True,
)
args = TrainingArguments(output_dir="out")
SFTTrainer(model=model, args=args, train_dataset=dataset, dataset_text_field="text", max_seq_length=length).train()
