"""The name server: who leads which group, which group has which topic, and a small dictionary of settings.

Law: nothing here is the truth. Brokers know who leads; a name server repeats the newest it was told and never an older
one. Two name servers do not talk about routes, and losing one loses nothing but its dictionary's file."""
