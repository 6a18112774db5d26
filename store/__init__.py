"""Bytes on disk: synchronous functions over the Disk port.

Law: nothing here waits for anything but the disk. Does not know: asyncio, sockets, consensus.
"""
