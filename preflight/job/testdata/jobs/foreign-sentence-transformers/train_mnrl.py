from datasets import load_dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.losses import MultipleNegativesRankingLoss

model = SentenceTransformer("microsoft/mpnet-base")
train_dataset = load_dataset("sentence-transformers/all-nli", "triplet", split="train")
loss = MultipleNegativesRankingLoss(model)
args = SentenceTransformerTrainingArguments(output_dir="out", num_train_epochs=1, per_device_train_batch_size=64, fp16=False, bf16=True, gradient_accumulation_steps=2)
trainer = SentenceTransformerTrainer(model=model, args=args, train_dataset=train_dataset, loss=loss)
trainer.train()
