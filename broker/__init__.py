"""The broker: the only place where dledger, store and remoting meet."""
