"""What dev.py does: environments, locks and checks. Standard library only (contracts.py excepted, see there)."""
