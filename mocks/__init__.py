"""The mock services that activities call: payments, shipping and drivers."""
