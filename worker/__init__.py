"""The worker service: hosts the demo's workflows and activities on odin's Worker."""
