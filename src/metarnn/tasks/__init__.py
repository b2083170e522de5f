"""What a model is trained and measured on: data, model, loss, metric."""
