"""From `trainer.fit` to a population: the same module, data module and Trainer."""

import lightning as L
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from esgd.integrations.lightning import fit

x = torch.randn(400, 5, generator=torch.Generator().manual_seed(0))
y = x[:, :1] * x[:, 1:2]


class Regression(L.LightningModule):
    def __init__(self, lr: float = 0.01) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.network = nn.Sequential(nn.Linear(5, 32), nn.Tanh(), nn.Linear(32, 1))

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        return F.mse_loss(self.network(batch[0]), batch[1])

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self.log("val_loss", F.mse_loss(self.network(batch[0]), batch[1]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


class Products(L.LightningDataModule):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(TensorDataset(x[:300], y[:300]), batch_size=20, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(TensorDataset(x[300:], y[300:]), batch_size=50)


trainer = L.Trainer(max_epochs=10, accelerator="cpu", logger=False, enable_checkpointing=False)
result = fit(
    Regression, datamodule=Products(), monitor="val_loss", trainer=trainer, seed=0, engine="loop", progress=False
)
print(f"{type(result.model).__name__}: val_loss {result.fitness:.3f}")
