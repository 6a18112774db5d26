"""The wire: frames, commands, header codecs and typed headers, all sans-IO; connections carry them over sockets."""
