"""Write the events of an online auction as Nexmark specifies them: persons, auctions and bids.

    python pipelines/nexmark/generate.py --out .tussock/nexmark/data --events 100000 --batches 4

writes one Parquet file per stream and batch:
    <out>/person/000000.parquet …   <out>/auction/000000.parquet …   <out>/bid/000000.parquet …
    <out>/rows.sql          INSERT statements for the table side_input of query 13

Among 50 consecutive events are one new person, three new auctions and 46 bids. So the number of an event
determines its kind and the ids that exist by then. Half of the bids go to the newest hot auction, three in four come
from a hot bidder, and three in four auctions belong to a hot seller.

The columns of a batch come from one seed, so the same arguments always write the same rows. Existing batches stay
unchanged, so more batches later only add files.
"""

import argparse
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

START = datetime(2015, 7, 15, tzinfo=UTC)
EVENTS_A_SECOND = 1_000
PERSONS, AUCTIONS, BIDS = 1, 3, 46  # per ROUND consecutive events
ROUND = PERSONS + AUCTIONS + BIDS
FIRST_ID = 1_000  # of persons and auctions
FIRST_CATEGORY, CATEGORIES = 10, 5
ACTIVE_PERSONS, OPEN_AUCTIONS = 1_000, 100  # the newest persons that bid and sell, and the newest auctions with bids
HOT_AUCTION, HOT_BIDDER, HOT_SELLER = 100, 100, 100  # one id in so many is hot
CHANNELS = 10_000

STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")

Ints = npt.NDArray[np.int64]


def persons(numbers: Ints, chance: np.random.Generator) -> pa.Table:
    """The persons among these event numbers."""
    numbers = numbers[numbers % ROUND < PERSONS]
    n = len(numbers)
    names = np.char.add(np.char.add(_one_of(FIRST_NAMES, n, chance), " "), _one_of(LAST_NAMES, n, chance))
    cards = [_padded(chance.integers(0, 10_000, n), 4) for _ in range(4)]
    return _table(
        id=_last_person(numbers),
        name=names,
        email_address=np.char.add(np.char.add(_text(n, 7, chance), "@"), np.char.add(_text(n, 5, chance), ".com")),
        credit_card=np.char.add(
            np.char.add(cards[0], " "),
            np.char.add(np.char.add(cards[1], " "), np.char.add(np.char.add(cards[2], " "), cards[3])),
        ),
        city=_one_of(CITIES, n, chance),
        state=_one_of(STATES, n, chance),
        date_time=_moments(numbers),
        extra=_text(n, 20, chance),
    )


def auctions(numbers: Ints, chance: np.random.Generator) -> pa.Table:
    """The auctions among these event numbers. On average, about 100 auctions are open at a time."""
    place = numbers % ROUND
    numbers = numbers[(place >= PERSONS) & (place < PERSONS + AUCTIONS)]
    n = len(numbers)
    newest = _last_person(numbers)
    hot = chance.random(n) < 1 - 1 / 4
    sellers = np.where(hot, _hot(newest, HOT_SELLER), _recent(newest, ACTIVE_PERSONS, chance))
    initial, started = _prices(n, chance), _moments(numbers)
    horizon_us = OPEN_AUCTIONS * ROUND // AUCTIONS * 1_000_000 // EVENTS_A_SECOND
    return _table(
        id=_last_auction(numbers),
        item_name=_text(n, 12, chance),
        description=_text(n, 40, chance),
        initial_bid=initial,
        reserve=initial + _prices(n, chance),
        date_time=started,
        expires=started + 1 + chance.integers(0, 2 * horizon_us, n),
        seller=sellers,
        category=FIRST_CATEGORY + chance.integers(0, CATEGORIES, n),
        extra=_text(n, 20, chance),
    )


def bids(numbers: Ints, chance: np.random.Generator) -> pa.Table:
    """The bids among these event numbers. `id` is the event number, because two bids may be equal otherwise."""
    numbers = numbers[numbers % ROUND >= PERSONS + AUCTIONS]
    n = len(numbers)
    auction, person = _last_auction(numbers), _last_person(numbers)
    auction = np.where(
        chance.random(n) < 1 - 1 / 2, _hot(auction, HOT_AUCTION), _recent(auction, OPEN_AUCTIONS, chance)
    )
    bidder = np.where(
        chance.random(n) < 1 - 1 / 4, _hot(person, HOT_BIDDER) + 1, _recent(person, ACTIVE_PERSONS, chance)
    )
    number = chance.integers(0, CHANNELS, n)
    hot = chance.random(n) < 1 / 2
    path = np.char.add(
        "https://www.nexmark.com/", np.char.add(_text(n, 5, chance), np.char.add("/", _text(n, 5, chance)))
    )
    path = np.char.add(path, "/item.htm?query=1")
    with_channel = np.char.add(path, np.char.add("&channel_id=", number.astype(str)))
    return _table(
        id=numbers,
        auction=auction,
        bidder=bidder,
        price=_prices(n, chance),
        channel=np.where(hot, _one_of(HOT_CHANNELS, n, chance), np.char.add("channel-", number.astype(str))),
        url=np.where(hot | (chance.random(n) < 0.1), path, with_channel),
        date_time=_moments(numbers),
        extra=_text(n, 20, chance),
    )


STREAMS = {"person": persons, "auction": auctions, "bid": bids}


def batch(first: int, events: int, seed: int = 0) -> dict[str, pa.Table]:
    """Events `first`, `first + 1`, … as rows of the three streams. Cost: about 1 s per million."""
    numbers = np.arange(first, first + events, dtype=np.int64)
    return {
        name: make(numbers, np.random.default_rng([seed, first, k])) for k, (name, make) in enumerate(STREAMS.items())
    }


def generate(out: Path, events: int, batches: int = 1, seed: int = 0) -> dict[str, int]:
    """Write `batches` batches of `events` events each, and the rows of side_input. Return the rows per stream."""
    written = dict.fromkeys(STREAMS, 0)
    for number in range(batches):
        paths = {name: out / name / f"{number:06}.parquet" for name in STREAMS}
        if not all(path.exists() for path in paths.values()):
            for name, rows in batch(number * events, events, seed).items():
                _write(rows, paths[name])
                written[name] += rows.num_rows
    values = ", ".join(f"({key}, '{key}')" for key in range(1_000))
    (out / "rows.sql").write_text(f"INSERT INTO side_input VALUES {values};\n")
    return written


def _last_person(numbers: Ints) -> Ints:
    """The id of the newest person at each event, the event itself included."""
    return FIRST_ID + numbers // ROUND * PERSONS


def _last_auction(numbers: Ints) -> Ints:
    """The id of the newest auction at each event, the event itself included."""
    place = numbers % ROUND
    opened = np.where(place < PERSONS, -1, np.minimum(place - PERSONS, AUCTIONS - 1))  # -1: the previous round
    return FIRST_ID + np.maximum(numbers // ROUND * AUCTIONS + opened, 0)


def _hot(newest: Ints, every: int) -> Ints:
    return FIRST_ID + (newest - FIRST_ID) // every * every


def _recent(newest: Ints, many: int, chance: np.random.Generator) -> Ints:
    return newest - (chance.random(len(newest)) * np.minimum(newest - FIRST_ID + 1, many)).astype(np.int64)


def _prices(n: int, chance: np.random.Generator) -> Ints:
    """Prices in cents, from 1 to a million dollars. All orders of magnitude are equally likely."""
    return np.rint(10 ** (chance.random(n) * 6) * 100).astype(np.int64)


def _moments(numbers: Ints) -> Ints:
    """The time of each event in microseconds since 1970, at a constant rate."""
    return int(START.timestamp()) * 1_000_000 + numbers * 1_000_000 // EVENTS_A_SECOND


def _one_of(values: tuple[str, ...], n: int, chance: np.random.Generator) -> npt.NDArray[np.str_]:
    return np.array(values)[chance.integers(0, len(values), n)]


def _padded(numbers: Ints, digits: int) -> npt.NDArray[np.str_]:
    return np.char.zfill(numbers.astype(str), digits)


def _text(n: int, length: int, chance: np.random.Generator) -> npt.NDArray[np.str_]:
    """Strings of `length` lower-case letters."""
    letters = chance.integers(ord("a"), ord("z") + 1, (n, length), dtype=np.uint32)
    return letters.view(f"<U{length}").reshape(n) if n else np.zeros(0, f"<U{length}")


def _table(**columns: npt.NDArray[np.generic]) -> pa.Table:
    kinds = {"date_time": pa.timestamp("us", tz="UTC"), "expires": pa.timestamp("us", tz="UTC")}
    return pa.table(
        {name: pa.array(values).cast(kinds.get(name, pa.array(values[:0]).type)) for name, values in columns.items()}
    )


def _write(rows: pa.Table, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}")  # readers skip hidden files, so none sees a partial file
    pq.write_table(rows, hidden)
    hidden.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write Nexmark's persons, auctions and bids as Parquet files.")
    parser.add_argument(
        "--out", type=Path, default=Path(".tussock/nexmark/data"), help="folder to write to (default: %(default)s)"
    )
    parser.add_argument("--events", type=int, default=100_000, help="events per batch (default: %(default)s)")
    parser.add_argument(
        "--batches", type=int, default=1, help="number of batches, one file per batch and stream (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the random values (default: %(default)s)")
    given = parser.parse_args()
    for name, rows in generate(given.out, given.events, given.batches, given.seed).items():
        print(f"{name:>8}: {rows:>9,} rows")


if __name__ == "__main__":
    main()
