"""How something is erased, proved to be gone, and kept from coming back."""
