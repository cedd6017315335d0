import lightning as L
import torch
from torch.utils.data import DataLoader


def main():
    fabric = L.Fabric()
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = fabric.setup(model, optimizer)
    for batch in fabric.setup_dataloaders(DataLoader(data(), batch_size=20, shuffle=True)):
        loss = model(*batch)
        fabric.backward(loss)
        optimizer.step()
        optimizer.zero_grad()


main()
