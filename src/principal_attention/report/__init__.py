"""What people look at: pages that need no network, made from records alone."""
