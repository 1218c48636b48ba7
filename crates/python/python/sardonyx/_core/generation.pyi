from collections.abc import Mapping, Sequence
from typing import Any, final

from sardonyx._core.session import StopFlag
from sardonyx.typing import StrPath, Value

# Any: prompts are texts, tokens or messages, and each option has a type of its own.

@final
class Generator:
    """Language model of a directory."""
    def __new__(
        cls,
        directory: StrPath,
        *,
        model: str | None = None,
        threads: int | None = None,
        memory_limit: int | None = None,
        tokenizer: Any = None,
    ) -> Generator: ...
    def generate(self, prompt: Any, **options: Any) -> Any:
        """Continues a prompt, or each of several."""
    def stream(self, prompt: Any, **options: Any) -> TextStream:
        """Continues a prompt token by token."""
    def next_probabilities(self, prompt: Any, **options: Any) -> Value:
        """Returns the probability of each token to come after a prompt."""
    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Converts a text to tokens."""
    def decode(self, tokens: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Converts tokens to a text."""
    def apply_chat_template(
        self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool = True, **variables: Any
    ) -> str:
        """Returns the text of a conversation by the chat template."""
    def forget_prefix(self) -> None:
        """Drops the keys and values that a later prompt could reuse."""
    @property
    def context_length(self) -> int | None:
        """Returns the maximum number of tokens of prompt and answer; None without a limit."""
    @property
    def state_bytes_per_token(self) -> int:
        """Returns the size of keys and values of one token, in bytes."""

@final
class Generation:
    """Answer to a prompt."""
    @property
    def text(self) -> str:
        """Text of the answer, without the prompt."""
    @property
    def tokens(self) -> list[int]:
        """Tokens of the answer, with the one that ended it."""
    @property
    def prompt_tokens(self) -> int:
        """Number of tokens of the prompt."""
    @property
    def finish_reason(self) -> str:
        """Reason for the end of the answer: `end-token`, `stop-string`, `length` or `stopped`."""
    @property
    def logprobs(self) -> list[float]:
        """Logarithms of the probabilities of the tokens, if `logprobs` is given."""
    @property
    def top_logprobs(self) -> list[list[tuple[int, float]]]:
        """Most likely tokens at each place, with the logarithms of their probabilities."""

@final
class Piece:
    """Piece of an answer: a token, and the text that it completes."""
    @property
    def member(self) -> int:
        """Number of the prompt, from 0."""
    @property
    def token(self) -> int | None:
        """Token; None if generation was stopped before one."""
    @property
    def text(self) -> str:
        """Text of whole characters, which may be empty."""
    @property
    def logprob(self) -> float | None:
        """Logarithm of the token's probability, if `logprobs` is given."""
    @property
    def top_logprobs(self) -> list[tuple[int, float]]:
        """Most likely tokens, with the logarithms of their probabilities."""
    @property
    def finish_reason(self) -> str | None:
        """Reason for the end of the answer with this piece; None if it goes on."""

@final
class TextStream:
    """Iterator over the pieces of answers. Dropping it ends generation."""
    def __iter__(self) -> TextStream: ...
    def __next__(self) -> Piece: ...
    def close(self) -> None:
        """Ends generation."""

@final
class Embedder:
    """Encoder of a directory that gives vectors."""
    def __new__(
        cls,
        directory: StrPath,
        *,
        model: str | None = None,
        threads: int | None = None,
        memory_limit: int | None = None,
        max_length: int | None = None,
    ) -> Embedder: ...
    def embed(
        self,
        texts: str | Sequence[str],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        normalize: bool | None = None,
        truncate_dim: int | None = None,
        batch_size: int = 32,
        stop: StopFlag | None = None,
    ) -> Value:
        """Converts texts to an array of vectors, or one text to a vector."""
    @property
    def max_length(self) -> int | None:
        """Returns the maximum number of tokens of a text; None without a limit."""
    @property
    def pooling(self) -> str:
        """Returns how the vectors of a text's tokens are combined, such as `mean`."""

@final
class Classifier:
    """Encoder of a directory that gives labels."""
    def __new__(
        cls,
        directory: StrPath,
        *,
        model: str | None = None,
        threads: int | None = None,
        memory_limit: int | None = None,
        max_length: int | None = None,
    ) -> Classifier: ...
    def classify(self, texts: str | Sequence[str]) -> list[list[dict[str, Any]]]:
        """Returns the labels of each text with their probabilities, the most likely one first."""
    def rerank(self, query: str, documents: Sequence[str]) -> Value:
        """Returns how well each document answers a query, from 0 to 1."""
    def find_spans(self, texts: str | Sequence[str]) -> list[list[dict[str, Any]]]:
        """Returns the labelled spans of each text, with the places of their characters."""
