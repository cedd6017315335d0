import argparse
import submitit


def work(args):
    from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
    model = AutoModelForCausalLM.from_pretrained(args.model_name_or_path)
    training = TrainingArguments(output_dir="out", per_device_train_batch_size=args.per_device_train_batch_size, bf16=True, gradient_checkpointing=True)
    Trainer(model=model, args=training, train_dataset=rows()).train()


parser = argparse.ArgumentParser()
parser.add_argument("--nodes", type=int, default=1)
parser.add_argument("--gpus", type=int, default=8)
parser.add_argument("--model_name_or_path")
parser.add_argument("--per_device_train_batch_size", type=int, default=1)
args = parser.parse_args()
executor = submitit.AutoExecutor(folder="logs")
executor.update_parameters(nodes=args.nodes, gpus_per_node=args.gpus, tasks_per_node=args.gpus)
executor.submit(work, args)
