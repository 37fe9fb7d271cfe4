"""Amounts of money as text."""


def dollars_text(amount: float) -> str:
    """An amount of money, rounded."""
    if amount == 0:
        return "$0"
    return f"${amount:,.2f}" if amount >= 1 else f"${amount:.4f}" if amount >= 0.0001 else "< $0.0001"
