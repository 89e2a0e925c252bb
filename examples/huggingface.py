"""A population of LoRA adapters on one BERT, by `Trainer`'s arguments. It needs esgd[transformers] and no download."""

import tempfile

import torch
from peft import LoraConfig, get_peft_model
from transformers import BertConfig, BertForSequenceClassification, TrainingArguments

from esgd.integrations.transformers import EsgdTrainer


def model_init() -> torch.nn.Module:
    """Yours is AutoModelForSequenceClassification.from_pretrained(…)."""
    config = BertConfig(
        vocab_size=20,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=8,
    )
    return get_peft_model(BertForSequenceClassification(config), LoraConfig(task_type="SEQ_CLS", r=4))


ids = torch.randint(0, 20, (160, 8), generator=torch.Generator().manual_seed(0))
samples = [{"input_ids": row, "label": int((row < 10).sum() > 4)} for row in ids]
with tempfile.TemporaryDirectory() as folder:
    args = TrainingArguments(
        output_dir=folder, learning_rate=3e-3, num_train_epochs=4, disable_tqdm=True, report_to="none", use_cpu=True
    )
    trainer = EsgdTrainer(
        model_init=model_init, args=args, train_dataset=samples[:120], eval_dataset=samples[120:], engine="loop"
    )
    before = trainer.evaluate()["eval_loss"]
    result = trainer.train()
    print(f"loss {before:.3f} → {result.fitness:.3f}, an adapter of {result.population.genome.size} parameters")
