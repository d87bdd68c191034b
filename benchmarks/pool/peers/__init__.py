"""The queues that are measured beside ours; each folder holds one program or two with their lock files."""
