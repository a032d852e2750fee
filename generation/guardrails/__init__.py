"""Guard rails of one tenant: what is not answered, what the model does not see, and what the asker does not see."""
