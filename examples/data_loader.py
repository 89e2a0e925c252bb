"""The DataLoader that you have, batches that are dicts, and a loss of (model, batch)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

import esgd

generator = torch.Generator().manual_seed(0)
lengths = torch.randint(3, 9, (400,), generator=generator).tolist()
texts = [torch.randint(1, 20, (length,), generator=generator) for length in lengths]
samples = [{"words": words, "label": int((words < 5).any())} for words in texts]


def padded(chosen: list[dict]) -> dict[str, Tensor]:
    """Sequences of different lengths as one tensor, filled up with 0."""
    words = pad_sequence([each["words"] for each in chosen], batch_first=True)
    return {"words": words, "label": torch.tensor([each["label"] for each in chosen])}


class Bag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.output = nn.EmbeddingBag(20, 16, padding_idx=0), nn.Linear(16, 2)

    def forward(self, words: Tensor) -> Tensor:
        return self.output(self.embedding(words))


def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch["words"]), batch["label"])


train = DataLoader(samples[:300], batch_size=20, shuffle=True, collate_fn=padded)
fitness = DataLoader(samples[300:], batch_size=50, collate_fn=padded)
task = esgd.Supervised(Bag, loss, train=train, fitness=fitness, nonnegative=True)
result = esgd.fit(task, esgd.Recipe(population=4, generations=3, sgd_epochs=5), seed=0, engine="loop", progress=False)
print(f"loss on the fitness split: {result.fitness:.3f}")
