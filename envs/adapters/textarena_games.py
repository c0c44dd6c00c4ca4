"""The games of TextArena that run without further data, keys or network, and their players."""

# By the number of players that they have here, the least that each can be played with. Of the other
# families of version 0.7.4 some need corpora of NLTK (Wordle, Hangman), a hosted model (Debate,
# TwentyQuestions) or files that the package does not contain (UsedCarNegotiation), and some are no
# Python 3.11 (Chess, Checkers).
_BY_PLAYERS = {
    1: (
        "2048 Bandit Blackjack Countdown Crosswords Cryptarithm FifteenPuzzle FrozenLake "
        "GuessTheNumber LightsOut LogicPuzzle Mastermind Minesweeper PegJump RushHour "
        "Secretary Set Slitherlink Sokoban Sudoku ThreeCardMonte TowerOfHanoi "
    ),
    2: (
        "Alquerque Battleship Breakthrough Briscola Chopsticks ColonelBlotto ConnectFour "
        "Crusade GameOfPureStrategy GermanWhist Golf HighSociety IndianPoker "
        "IteratedMatchingPennies IteratedPrisonersDilemma IteratedRockPaperScissors "
        "IteratedTwoThirdsAverage IteratedUltimatumGame KuhnPoker LiarsDice LinesOfAction "
        "MarketEntryGame MemoryGame NewRecruit Nim Othello PigDice Poker PublicGoodsGame "
        "QuantumTicTacToe SantoriniBaseFixed SimpleBlindAuction SimpleNegotiation SimpleTak "
        "Snake SpiteAndMalice Stratego Surround Tak TicTacToe TruthAndDeception TwoDollar "
        "UltimateTicTacToe WildTicTacToe "
    ),
    3: ("ThreePlayerGOPS ThreePlayerIPD ThreePlayerTicTacToe "),
    4: ("SettlersOfCatan Taboo "),
    6: ("SecretMafia "),
}
NUM_PLAYERS = {name: n for n, names in _BY_PLAYERS.items() for name in names.split()}
