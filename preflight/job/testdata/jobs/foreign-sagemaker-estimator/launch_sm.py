import sagemaker
from sagemaker.huggingface import HuggingFace

hyperparameters = {"model_name_or_path": "meta-llama/Llama-2-7b-hf", "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "bf16": True, "epochs": 3}
estimator = HuggingFace(entry_point="run_clm.py", source_dir="./scripts", instance_type="ml.p4d.24xlarge", instance_count=2, role=sagemaker.get_execution_role(),
    transformers_version="4.36", pytorch_version="2.1", py_version="py310", distribution={"torch_distributed": {"enabled": True}}, hyperparameters=hyperparameters)
estimator.fit({"train": "s3://bucket/train"})
