import os
from functools import partial
import torch
from transformers import AutoModelForCausalLM
from .utils import SftArguments, get_model_tokenizer, Seq2SeqTrainer, prepare_model, parse_args


def llm_sft(args: SftArguments):
    if args.tuner_backend == 'unsloth':
        from unsloth import FastLanguageModel
        model, tokenizer = FastLanguageModel.from_pretrained(model_name=args.model_id_or_path, max_seq_length=2048, load_in_4bit=args.quantization_bit == 4)
    else:
        model, tokenizer = get_model_tokenizer(args)
    model, callbacks = prepare_model(model, args)
    trainer = Seq2SeqTrainer(model=model, args=args.training_args, train_dataset=data(args), tokenizer=tokenizer, callbacks=callbacks)
    trainer.train()


def sft_main():
    args = parse_args(SftArguments)
    return llm_sft(args)


if __name__ == '__main__':
    sft_main()
